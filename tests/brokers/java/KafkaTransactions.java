import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.common.TopicPartition;

/**
 * Java's AdminClient as a judge of what ours says of transactions: it answers, until its standard input ends, each line of words there.
 * Each answer is one JSON object a line, and {"answered": 0} or {"answered": 0, "failed": why} behind them:
 *
 *   list SERVERS STATES IDS MILLISECONDS   "-" for no filter: each transactional id, with its node
 *   describe SERVERS NAME …                each transaction
 *   producers SERVERS TOPIC PARTITION      each producer that the leader knows
 *   abort SERVERS TOPIC PARTITION OFFSET   as kafka-transactions.sh does: the transaction that begins there; {"aborted": producer id}
 */
public class KafkaTransactions {
    public static void main(String[] args) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.replace("\"", "").split(" ");
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", words[1]))) {
                answer(admin, words);
                tell("answered", 0);
            } catch (Exception why) {
                tell("answered", 0, "failed", why.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " "));
            }
        }
    }

    static void answer(Admin admin, String[] words) throws Exception {
        switch (words[0]) {
            case "list" -> list(admin, words[2], words[3], words[4]);
            case "describe" -> describe(admin, Arrays.asList(words).subList(2, words.length));
            case "producers" -> {
                for (ProducerState one : producers(admin, words[2], words[3])) {
                    tell("producer_id", one.producerId(), "producer_epoch", one.producerEpoch(), "last_sequence", one.lastSequence(),
                        "last_timestamp", one.lastTimestamp(), "coordinator_epoch", one.coordinatorEpoch().orElse(-1),
                        "transaction_start", one.currentTransactionStartOffset().orElse(-1));
                }
            }
            case "abort" -> abort(admin, words[2], words[3], Long.parseLong(words[4]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    static void list(Admin admin, String states, String ids, String milliseconds) throws Exception {
        ListTransactionsOptions options = new ListTransactionsOptions();
        if (!states.equals("-")) {
            options.filterStates(Arrays.stream(states.split(",")).map(TransactionState::parse).collect(Collectors.toSet()));
        }
        if (!ids.equals("-")) {
            options.filterProducerIds(Arrays.stream(ids.split(",")).map(Long::valueOf).collect(Collectors.toSet()));
        }
        if (!milliseconds.equals("-")) {
            options.filterOnDuration(Long.parseLong(milliseconds));
        }
        for (Map.Entry<Integer, Collection<TransactionListing>> node : admin.listTransactions(options).allByBrokerId().get().entrySet()) {
            for (TransactionListing one : node.getValue()) {
                tell("name", one.transactionalId(), "producer_id", one.producerId(), "state", one.state(), "coordinator", node.getKey());
            }
        }
    }

    static void describe(Admin admin, List<String> names) throws Exception {
        for (Map.Entry<String, TransactionDescription> entry : new TreeMap<>(admin.describeTransactions(names).all().get()).entrySet()) {
            TransactionDescription one = entry.getValue();
            List<String> parts = new ArrayList<>();
            one.topicPartitions().forEach(part -> parts.add(part.topic() + " " + part.partition()));
            parts.sort(null);
            tell("name", entry.getKey(), "state", one.state(), "producer_id", one.producerId(), "producer_epoch", one.producerEpoch(),
                "coordinator", one.coordinatorId(), "timeout", one.transactionTimeoutMs(), "started", one.transactionStartTimeMs().orElse(-1),
                "partitions", String.join(",", parts));
        }
    }

    static List<ProducerState> producers(Admin admin, String topic, String number) throws Exception {
        TopicPartition part = new TopicPartition(topic, Integer.parseInt(number));
        return admin.describeProducers(List.of(part)).partitionResult(part).get().activeProducers();
    }

    static void abort(Admin admin, String topic, String number, long start) throws Exception {
        for (ProducerState one : producers(admin, topic, number)) {
            if (one.currentTransactionStartOffset().orElse(-1) == start) {
                admin.abortTransaction(new AbortTransactionSpec(new TopicPartition(topic, Integer.parseInt(number)), one.producerId(),
                    (short) one.producerEpoch(), one.coordinatorEpoch().orElse(0))).all().get();
                tell("aborted", one.producerId());
            }
        }
    }

    static void tell(Object... fields) {
        StringBuilder line = new StringBuilder("{");
        for (int n = 0; n < fields.length; n += 2) {
            line.append(n > 0 ? ", " : "").append('"').append(fields[n]).append("\": ");
            line.append(fields[n + 1] instanceof Number ? fields[n + 1] : "\"" + fields[n + 1] + "\"");
        }
        System.out.println(line.append("}"));
    }
}
