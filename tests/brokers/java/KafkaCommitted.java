import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Java's read_committed consumer as a judge: reads each topic that a line of the standard input names, from its beginning to its end, which
 * is before the first open transaction, and prints {"topic": name, "values": [texts, in the order in which they came]} of each, in order.
 * The argument: the servers.
 */
public final class KafkaCommitted {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "isolation.level", "read_committed", "fetch.max.wait.ms", 50,
            "enable.auto.commit", false, "max.poll.records", 100000);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, List<String>> found = new LinkedHashMap<>();
        for (String line; (line = lines.readLine()) != null; ) {
            found.put(line.replace("\"", ""), new ArrayList<>());
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> parts = new ArrayList<>();
            for (String topic : found.keySet()) {
                for (PartitionInfo part : consumer.partitionsFor(topic)) {
                    parts.add(new TopicPartition(topic, part.partition()));
                }
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(parts);
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            while (!(parts = parts.stream().filter(part -> consumer.position(part) < ends.get(part)).collect(Collectors.toList())).isEmpty()) {
                consumer.assign(parts);
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    found.get(record.topic()).add(record.value());
                }
            }
        }
        found.forEach((topic, values) -> System.out.println("{\"topic\": \"" + topic + "\", \"values\": ["
            + values.stream().map(value -> '"' + value + '"').collect(Collectors.joining(", ")) + "]}"));
    }
}
