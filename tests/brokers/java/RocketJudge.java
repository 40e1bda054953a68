// RocketMQ's own Java client as a judge, for both lines (4.9 and 5.x). Bodies, keys and values travel as base64 where they may be no text.
//   send    NAMESRV TOPIC [ACCESS SECRET]                 stdin: {"body": base64, "keys": text, "tag": text, "queue": n, "properties": {..}} a line
//   batch   NAMESRV TOPIC [ACCESS SECRET]                 the same lines, as one batch message per queue 0
//   pull    NAMESRV TOPIC [ACCESS SECRET]                 every message of every queue, from the first to the last there is
//   create  NAMESRV TOPIC QUEUES BROKER-ADDRESS [ACCESS SECRET]
//   push    NAMESRV TOPIC GROUP COUNT [ACCESS SECRET]     a push consumer; ends after COUNT messages. -Djudge.route=MS: between two looks at the route
//   transact NAMESRV TOPIC GROUP LOCAL CHECK [ACCESS SECRET]   a transactional producer that stays, also when its input has ended, and
//           answers check-backs with CHECK; LOCAL is the word for each half that it sends. Both: commit, rollback or unknow. stdin: as for send.
//           Prints {"ready": true}, what it has sent, and {"checked": message} for each question
//   stay    runs one of the other modes after another, but not transact, in one JVM: to start one costs a second of a core.
//           stdin: {"words": its arguments, "input": what it reads, "properties": of the system, meanwhile} a line
//           Prints what that mode prints, and then {"done": true} or {"failed": text}
// Every message printed: {"queue", "offset", "keys", "tag", "body", "born", "properties", "msgId", "reconsume", "sysFlag", "store": its broker's port}
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.acl.common.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.exception.RemotingTimeoutException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import com.alibaba.fastjson.*;

public class RocketJudge {
    static final String INSTANCE = "judge-" + ProcessHandle.current().pid();

    public static void main(String[] a) {
        try {
            if (a[0].equals("stay")) stay();
            else run(a, lines());
        } catch (Throwable why) {
            why.printStackTrace();
            System.exit(1);  // the client's threads would keep the process
        }
        System.out.flush();
        System.exit(0);
    }

    static Iterator<JSONObject> lines() {
        Scanner in = new Scanner(System.in, StandardCharsets.UTF_8);
        return new Iterator<JSONObject>() {
            public boolean hasNext() { return in.hasNextLine(); }

            public JSONObject next() { return JSON.parseObject(in.nextLine()); }
        };
    }

    static void stay() {
        for (Iterator<JSONObject> asked = lines(); asked.hasNext(); ) {
            JSONObject one = asked.next(), properties = one.getJSONObject("properties"), end = new JSONObject();
            List<JSONObject> input = new ArrayList<>();
            for (Object item : one.getJSONArray("input")) input.add((JSONObject) item);
            for (String name : properties.keySet()) System.setProperty(name, properties.getString(name));
            try {
                run(one.getJSONArray("words").toArray(new String[0]), input.iterator());
                end.put("done", true);
            } catch (Throwable why) {
                StringWriter text = new StringWriter();
                why.printStackTrace(new PrintWriter(text));
                end.put("failed", text.toString());
            }
            for (String name : properties.keySet()) System.clearProperty(name);
            System.out.println(end.toJSONString());
        }
    }

    static void run(String[] a, Iterator<JSONObject> in) throws Exception {
        int rest = a[0].equals("push") || a[0].equals("create") ? 5 : a[0].equals("transact") ? 6 : 3;
        RPCHook hook = a.length > rest ? new AclClientRPCHook(new SessionCredentials(a[rest], a[rest + 1])) : null;
        switch (a[0]) {
            case "send": send(a[1], a[2], hook, false, in); break;
            case "batch": send(a[1], a[2], hook, true, in); break;
            case "pull": pull(a[1], a[2], hook); break;
            case "push": push(a[1], a[2], a[3], Integer.parseInt(a[4]), hook); break;
            case "create": create(a[1], a[2], Integer.parseInt(a[3]), a[4], hook); break;
            case "transact": transact(a[1], a[2], a[3], state(a[4]), state(a[5]), hook, in); break;
            default: throw new IllegalArgumentException(a[0]);
        }
    }

    static void create(String namesrv, String topic, int queues, String broker, RPCHook hook) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(hook, 10000);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName(INSTANCE);
        admin.start();
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, queues, queues, 6));
        admin.shutdown();
    }

    static Message message(String topic, JSONObject o) {
        Message m = new Message(topic, Base64.getDecoder().decode(o.getString("body")));
        if (o.getString("keys") != null) m.setKeys(o.getString("keys"));
        if (o.getString("tag") != null) m.setTags(o.getString("tag"));
        JSONObject properties = o.getJSONObject("properties");
        if (properties != null) for (String name : properties.keySet()) m.putUserProperty(name, properties.getString(name));
        return m;
    }

    /** The client gives a name server some seconds, which one that has just been started does not always keep. */
    static <T> T patiently(Callable<T> question) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (true) {
            try {
                return question.call();
            } catch (MQClientException e) {
                if (!(e.getCause() instanceof RemotingTimeoutException) || System.nanoTime() > deadline) throw e;
            }
        }
    }

    static void send(String namesrv, String topic, RPCHook hook, boolean batch, Iterator<JSONObject> in) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("judge-producer", hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(INSTANCE);
        producer.setVipChannelEnabled(false);
        producer.start();
        List<MessageQueue> queues = patiently(() -> producer.fetchPublishMessageQueues(topic));
        Collections.sort(queues);
        List<Message> all = new ArrayList<>();
        while (in.hasNext()) {
            JSONObject o = in.next();
            Message m = message(topic, o);
            if (batch) { all.add(m); continue; }
            Integer queue = o.getInteger("queue");
            SendResult r = queue == null ? producer.send(m, 10000) : producer.send(m, queues.get(queue), 10000);
            sent(r);
        }
        if (batch) sent(producer.send(all, queues.get(0), 10000));
        producer.shutdown();
    }

    static LocalTransactionState state(String word) {
        switch (word) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            case "unknow": return LocalTransactionState.UNKNOW;
            default: throw new IllegalArgumentException(word);
        }
    }

    static void transact(
            String namesrv, String topic, String group, LocalTransactionState local, LocalTransactionState check, RPCHook hook,
            Iterator<JSONObject> in) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group, hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(INSTANCE);
        producer.setVipChannelEnabled(false);
        producer.setHeartbeatBrokerInterval(1000);  // brokers can ask it from the first one on that follows a send
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message m, Object word) { return (LocalTransactionState) word; }

            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                checked(m);
                return check;
            }
        });
        producer.start();
        patiently(() -> producer.fetchPublishMessageQueues(topic));
        producer.sendMessageInTransaction(new Message(topic, new byte[] {0}), LocalTransactionState.ROLLBACK_MESSAGE);
        System.out.println("{\"ready\": true}");
        while (in.hasNext()) sent(producer.sendMessageInTransaction(message(topic, in.next()), local));
        Thread.sleep(Long.MAX_VALUE);
    }

    static synchronized void checked(MessageExt m) {
        System.out.println("{\"checked\": " + shown(m).toJSONString() + "}");
    }

    static synchronized void sent(SendResult r) {
        JSONObject o = new JSONObject();
        o.put("status", r.getSendStatus().name());
        o.put("msgId", r.getMsgId());
        o.put("queue", r.getMessageQueue().getQueueId());
        o.put("offset", r.getQueueOffset());
        System.out.println(o.toJSONString());
    }

    static void pull(String namesrv, String topic, RPCHook hook) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("judge-pull", hook);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(INSTANCE);
        consumer.setVipChannelEnabled(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(patiently(() -> consumer.fetchSubscribeMessageQueues(topic)));
        Collections.sort(queues);
        for (MessageQueue queue : queues) {
            long at = consumer.minOffset(queue), end = consumer.maxOffset(queue);
            while (at < end) {
                PullResult r = consumer.pull(queue, "*", at, 32, 10000);
                if (r.getMsgFoundList() != null) for (MessageExt m : r.getMsgFoundList()) print(m);
                at = r.getNextBeginOffset();
            }
        }
        consumer.shutdown();
    }

    static void push(String namesrv, String topic, String group, int count, RPCHook hook) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = hook == null ? new DefaultMQPushConsumer(group)
            : new DefaultMQPushConsumer(null, group, hook, new org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(INSTANCE);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(Integer.getInteger("judge.route", consumer.getPollNameServerInterval()));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
            for (MessageExt m : list) { print(m); left.countDown(); }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(300, TimeUnit.SECONDS)) System.exit(3);  // longer than whoever started it waits
        consumer.shutdown();
    }

    static synchronized void print(MessageExt m) {
        System.out.println(shown(m).toJSONString());
    }

    static JSONObject shown(MessageExt m) {
        JSONObject o = new JSONObject();
        o.put("queue", m.getQueueId());
        o.put("offset", m.getQueueOffset());
        o.put("keys", m.getKeys());
        o.put("tag", m.getTags());
        o.put("body", Base64.getEncoder().encodeToString(m.getBody() == null ? new byte[0] : m.getBody()));
        o.put("born", m.getBornTimestamp());
        o.put("properties", new TreeMap<>(m.getProperties()));
        o.put("msgId", m.getMsgId());
        o.put("reconsume", m.getReconsumeTimes());
        o.put("sysFlag", m.getSysFlag());
        o.put("store", ((java.net.InetSocketAddress) m.getStoreHost()).getPort());
        return o;
    }
}
