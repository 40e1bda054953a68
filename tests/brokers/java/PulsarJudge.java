import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.JavaStringHash;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.impl.Murmur3Hash32;

/**
 * Pulsar's Java client as a judge.
 *   keys URL COUNT SCHEME TOPIC …   a key a line in, both hashes of each out; the first COUNT are sent to these partitioned topics, each
 *                                   by its hashing scheme, too; out: to which partitions
 *   work URL IN GROUP OUT COUNT END   takes COUNT messages, sends "java of " each, all in one transaction; END: commit or abort; out: the values
 *   read URL TOPIC LAST        values from the beginning up to LAST
 * Several of these in one run: with "then" between them.
 * Lines in: {"key": base64 of UTF-8 text}. Values are text.
 */
public class PulsarJudge {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        List<String> command = new ArrayList<>();
        for (String word : args) {
            if (word.equals("then")) {
                run(command.toArray(new String[0]));
                command.clear();
            } else {
                command.add(word);
            }
        }
        run(command.toArray(new String[0]));
        System.exit(0);
    }

    static void run(String[] args) throws Exception {
        switch (args[0]) {
            case "keys" -> keys(args[1], Integer.parseInt(args[2]), Arrays.copyOfRange(args, 3, args.length));
            case "work" -> work(args[1], args[2], args[3], args[4], Integer.parseInt(args[5]), args[6].equals("commit"));
            case "read" -> read(args[1], args[2], args[3]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void print(Map<String, Object> line) throws Exception {
        System.out.println(JSON.writeValueAsString(line));
        System.out.flush();
    }

    static String key(String line) throws Exception {
        return new String(Base64.getDecoder().decode(JSON.readTree(line).get("key").asText()), "UTF-8");
    }

    static void keys(String url, int count, String[] places) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build()) {
            List<Producer<byte[]>> producers = new ArrayList<>();
            for (int at = 0; at < places.length; at += 2) {
                producers.add(client.newProducer().topic(places[at + 1]).hashingScheme(HashingScheme.valueOf(places[at])).create());
            }
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            int number = 0;
            for (String line = in.readLine(); line != null; line = in.readLine(), number++) {
                String key = key(line);
                List<Integer> partitions = new ArrayList<>();
                for (Producer<byte[]> producer : number < count ? producers : List.<Producer<byte[]>>of()) {
                    MessageId id = producer.newMessage().key(key).value(key.getBytes("UTF-8")).send();
                    partitions.add(((MessageIdImpl) id).getPartitionIndex());
                }
                Map<String, Object> out = new LinkedHashMap<>();
                out.put("java", JavaStringHash.getInstance().makeHash(key));
                out.put("murmur3", Murmur3Hash32.getInstance().makeHash(key));
                out.put("partitions", partitions);
                print(out);
            }
        }
    }

    static void value(byte[] value) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("value", new String(value, "UTF-8"));
        print(out);
    }

    static void work(String url, String in, String group, String out, int count, boolean commit) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).enableTransaction(true).build();
                Consumer<byte[]> consumer = client.newConsumer().topic(in).subscriptionName(group).subscriptionType(SubscriptionType.Shared)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).enableBatchIndexAcknowledgment(true).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(out).sendTimeout(0, TimeUnit.SECONDS).create()) {
            Transaction turn = client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
            for (int done = 0; done < count; done++) {
                Message<byte[]> message = consumer.receive(30, TimeUnit.SECONDS);
                producer.newMessage(turn).value(("java of " + new String(message.getValue(), "UTF-8")).getBytes("UTF-8")).sendAsync();
                consumer.acknowledgeAsync(message.getMessageId(), turn).get();
                value(message.getValue());
            }
            (commit ? turn.commit() : turn.abort()).get();
        }
    }

    static void read(String url, String topic, String last) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
                Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            while (true) {
                byte[] value = reader.readNext(60, TimeUnit.SECONDS).getValue();
                if (new String(value, "UTF-8").equals(last)) {
                    return;
                }
                value(value);
            }
        }
    }
}
