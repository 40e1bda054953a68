import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.impl.JavaStringHash;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.impl.Murmur3Hash32;

/**
 * Pulsar's Java client as a judge.
 *   hash                       a key a line in, both hashes out
 *   produce URL TOPIC SCHEME   a key a line in, sent to a partitioned topic; out: where each went
 * Lines in: {"key": base64 of UTF-8 text}.
 */
public class PulsarJudge {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "hash" -> hash();
            case "produce" -> produce(args[1], args[2], args[3]);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    static void print(Map<String, Object> line) throws Exception {
        System.out.println(JSON.writeValueAsString(line));
        System.out.flush();
    }

    static String key(String line) throws Exception {
        return new String(Base64.getDecoder().decode(JSON.readTree(line).get("key").asText()), "UTF-8");
    }

    static void hash() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> out = new LinkedHashMap<>();
            out.put("java", JavaStringHash.getInstance().makeHash(key(line)));
            out.put("murmur3", Murmur3Hash32.getInstance().makeHash(key(line)));
            print(out);
        }
    }

    static void produce(String url, String topic, String scheme) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
                Producer<byte[]> producer = client.newProducer().topic(topic).hashingScheme(HashingScheme.valueOf(scheme)).create()) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                MessageId id = producer.newMessage().key(key(line)).value(key(line).getBytes("UTF-8")).send();
                Map<String, Object> out = new LinkedHashMap<>();
                out.put("partition", ((MessageIdImpl) id).getPartitionIndex());
                print(out);
            }
        }
    }
}
