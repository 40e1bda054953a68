// RocketMQ's own Java client at work, measured by its own process: CPU time and wall time after a warm-up.
//   pull  NAMESRV TOPIC GROUP PASSES COUNT    a lite pull consumer over the COUNT messages of a topic, PASSES times before the one that counts
//   push  NAMESRV TOPIC GROUP PASSES COUNT    the same by a push consumer, whose listener gets one message at a time and acknowledges it
//   sync | async | batch  NAMESRV TOPIC GROUP WARM COUNT      a producer: one at a time, 200 in flight, 100 in a batch
// Messages: a key of 16 characters, a body of 100 bytes. Prints {"cpu_us": per message, "wall_us": per message}.
import java.lang.management.ManagementFactory;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import com.sun.management.OperatingSystemMXBean;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

public class RocketBench {
    static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static long cpu, wall;

    static void begin() {
        cpu = SYSTEM.getProcessCpuTime();
        wall = System.nanoTime();
    }

    static void tell(int count) {
        double per = 1e3 * count;
        double spent = SYSTEM.getProcessCpuTime() - cpu, took = System.nanoTime() - wall;
        System.out.printf(Locale.ROOT, "{\"cpu_us\": %.4f, \"wall_us\": %.4f}%n", spent / per, took / per);
    }

    public static void main(String[] a) {
        try {
            int warm = Integer.parseInt(a[4]), count = Integer.parseInt(a[5]);
            if (a[0].equals("pull")) for (int pass = 0; pass <= warm; pass++) pull(a[1], a[2], a[3] + "-" + pass, count, pass == warm);
            else if (a[0].equals("push")) for (int pass = 0; pass <= warm; pass++) push(a[1], a[2], a[3] + "-" + pass, count, pass == warm);
            else produce(a[0], a[1], a[2], a[3], warm, count);
        } catch (Throwable why) {
            why.printStackTrace();
            System.exit(1);  // the client's threads would keep the process
        }
        System.out.flush();
        System.exit(0);
    }

    // A pass is repeated, and does not count, where assign(), which begins to pull at once, races with seekToBegin(), or where that finds
    // the connection which the client of the pass before has just closed.
    static void pull(String names, String topic, String group, int count, boolean counts) throws Exception {
        Exception last = null;
        for (int attempt = 0; attempt < 5; attempt++) {
            try {
                int found = pass(names, topic, group + "-" + attempt, count, counts);
                if (found == count) return;
                last = new IllegalStateException(found + " messages of " + count);
            } catch (MQClientException why) {
                last = why;
            }
        }
        throw last;
    }

    static int pass(String names, String topic, String group, int count, boolean counts) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(32);
        int found = 0;
        long bytes = 0, end = System.nanoTime() + 20_000_000_000L;
        begin();
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        consumer.assign(queues);
        for (MessageQueue queue : queues) consumer.seekToBegin(queue);
        while (found < count && System.nanoTime() < end) {
            for (MessageExt message : consumer.poll(1000)) {
                bytes += message.getBody().length;
                found++;
            }
        }
        if (counts && found == count && bytes > 0) tell(count);
        consumer.shutdown();
        return bytes == 0 ? -1 : found;
    }

    // Up to its shutdown, which stores the offsets of what was acknowledged; one listener at a time, as ours is one thread.
    static void push(String names, String topic, String group, int count, boolean counts) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setConsumeMessageBatchMaxSize(1);
        AtomicLong bytes = new AtomicLong();
        CountDownLatch left = new CountDownLatch(count);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                bytes.addAndGet(message.getBody().length);
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        begin();
        consumer.start();
        boolean all = left.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
        if (!all || bytes.get() < 100L * count) throw new IllegalStateException(left.getCount() + " messages of " + count + " are missing");
        if (counts) tell(count);
    }

    static Message message(String topic) {
        Message made = new Message(topic, new byte[100]);
        made.setKeys("kkkkkkkkkkkkkkkk");
        return made;
    }

    static void produce(String how, String names, String topic, String group, int warm, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(names);
        producer.start();
        round(how, producer, topic, warm);
        begin();
        round(how, producer, topic, count);
        tell(count);
        producer.shutdown();
    }

    static void round(String how, DefaultMQProducer producer, String topic, int count) throws Exception {
        if (how.equals("sync")) {
            for (int n = 0; n < count; n++) producer.send(message(topic));
        } else if (how.equals("batch")) {
            for (int n = 0; n < count; n += 100) {
                List<Message> some = new ArrayList<>();
                for (int m = 0; m < 100; m++) some.add(message(topic));
                producer.send(some);
            }
        } else {
            Semaphore room = new Semaphore(200);
            AtomicReference<Throwable> failed = new AtomicReference<>();
            for (int n = 0; n < count; n++) {
                room.acquire();
                producer.send(message(topic), new SendCallback() {
                    public void onSuccess(SendResult result) { room.release(); }
                    public void onException(Throwable why) { failed.set(why); room.release(); }
                });
            }
            room.acquire(200);
            if (failed.get() != null) throw new IllegalStateException(failed.get());
        }
    }
}
