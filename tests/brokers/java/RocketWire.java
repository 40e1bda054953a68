// RocketMQ's own classes as judges of the wire, for both lines (4.9 and 5.x); needs no broker.
//   java … RocketWire SEED COUNT     stdin: lines to decode (below); everything is printed as JSON lines, told apart by "kind"
//
//   code      {"of": "request" | "response" | "language", "name", "number"}          of the vendor's tables, by reflection
//   class     {"name", "action": request code or null, "fields": [[name, type, required], …], "untouched": {name: text}}    every header class
//   frame     {"class", "way": "encode" | "fast", "binary", "code", …, "values": {name: text}, "hex"}     COUNT of each class and header type
//   stored    {"hex", "values"}       batch {"hex", "values"}       id {"host", "port", "offset", "text"}       acl {"ext", "body", "secret", "signature"}
//   stdin: {"json": hex, "class": name} → decoded {"hex"}: a body of the protocol, decoded and encoded again
//   {"frame": hex, "class": name} → decoded {"code", …, "values"}      {"stored": hex} → decoded {"values"}      {"batch": hex} → decoded {"values"}
import com.alibaba.fastjson.*;
import io.netty.buffer.*;
import java.io.*;
import java.lang.annotation.Annotation;
import java.lang.reflect.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.jar.*;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.*;

public class RocketWire {
    static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    static final String[] TEXTS = {
        "x", "TopicTest", "0", "true", "标签", "😀 smile", "say \"no\" \\ /", "KEYS\u0001k 1\u0002TAGS\u0001TagA\u0002", "\t\n\r\b\f", "\u0000\u000b\u001f\u007f\u0080\u009f",
        "\u00ad\u2028\u2029\ufeff\uffff", "%RETRY%group", "{\"a\":1}", "'quoted' <b>&amp;", "long ".repeat(300),
    };
    static Random random;
    static final Map<String, Class<? extends CommandCustomHeader>> CLASSES = new TreeMap<>();
    static final Map<String, String> BODIES = new HashMap<>();

    public static void main(String[] a) throws Exception {
        random = new Random(Long.parseLong(a[0]));
        int count = Integer.parseInt(a[1]);
        codes();
        scan();
        for (Class<? extends CommandCustomHeader> kind : CLASSES.values()) {
            describe(kind);
            for (int i = 0; i < count; i++) {
                frame(kind, i, false, false);
                frame(kind, i, true, false);
                frame(kind, i, true, true);
                frame(kind, i, false, true);
            }
        }
        for (int i = 0; i < 4 * count; i++) stored(i);
        for (int i = 0; i < count; i++) batch(i + 1);
        ids(count);
        for (int i = 0; i < count; i++) acl();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) print(decoded(JSON.parseObject(line)));
        OUT.flush();
        System.exit(0);
    }

    static void print(Map<String, Object> what) {
        OUT.println(json(what));
    }

    /** Strict JSON, all ASCII: the judge's own lines must not depend on the writer that is judged. */
    static String json(Object what) {
        if (what instanceof Map) {
            StringJoiner all = new StringJoiner(",", "{", "}");
            ((Map<?, ?>) what).forEach((name, value) -> all.add(json(String.valueOf(name)) + ":" + json(value)));
            return all.toString();
        }
        if (what instanceof Collection) {
            StringJoiner all = new StringJoiner(",", "[", "]");
            ((Collection<?>) what).forEach(item -> all.add(json(item)));
            return all.toString();
        }
        if (what == null || what instanceof Number || what instanceof Boolean) return String.valueOf(what);
        StringBuilder text = new StringBuilder("\"");
        for (char c : String.valueOf(what).toCharArray()) {
            if (c < 32 || c > 126 || c == '"' || c == '\\') text.append(String.format("\\u%04x", (int) c));
            else text.append(c);
        }
        return text.append('"').toString();
    }

    static Map<String, Object> object(Object... pairs) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) made.put((String) pairs[i], pairs[i + 1]);
        return made;
    }

    static String hex(byte[] bytes) {
        return String.format("%0" + 2 * bytes.length + "x", new java.math.BigInteger(1, bytes)).substring(bytes.length == 0 ? 1 : 0);
    }

    static byte[] bytes(String hex) {
        byte[] made = new byte[hex.length() / 2];
        for (int i = 0; i < made.length; i++) made[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        return made;
    }

    // tables ------------------------------------------------------------------------------------------------------------------

    static Class<?> either(String... names) throws ClassNotFoundException {
        for (String name : names) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException none) {
                continue;
            }
        }
        throw new ClassNotFoundException(names[0]);
    }

    static void codes() throws Exception {
        String root = "org.apache.rocketmq.";
        numbers("request", either(root + "remoting.protocol.RequestCode", root + "common.protocol.RequestCode"));
        numbers("response", either(root + "common.protocol.ResponseCode", root + "remoting.protocol.ResponseCode"));
        for (LanguageCode one : LanguageCode.values()) print(object("kind", "code", "of", "language", "name", one.name(), "number", one.getCode()));
    }

    static void numbers(String of, Class<?> table) throws Exception {
        for (Field field : table.getFields()) print(object("kind", "code", "of", of, "name", field.getName(), "number", field.get(null)));
    }

    @SuppressWarnings("unchecked")
    static void scan() throws Exception {
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!path.contains("rocketmq") || !path.endsWith(".jar")) continue;
            try (JarFile jar = new JarFile(path)) {
                for (JarEntry entry : Collections.list(jar.entries())) {
                    String name = entry.getName();
                    if (name.contains("/protocol/") && name.endsWith(".class") && !name.contains("Header")) {
                        String full = name.replace('/', '.').substring(0, name.length() - 6);
                        BODIES.put(full.substring(full.lastIndexOf('.') + 1), full);
                    }
                    if (!name.endsWith(".class") || !name.contains("Header") || name.contains("$")) continue;
                    Class<?> found = Class.forName(name.replace('/', '.').substring(0, name.length() - 6), false, RocketWire.class.getClassLoader());
                    if (!CommandCustomHeader.class.isAssignableFrom(found) || Modifier.isAbstract(found.getModifiers())) continue;
                    CLASSES.put(found.getSimpleName(), (Class<? extends CommandCustomHeader>) found);
                }
            }
        }
    }

    static List<Field> fields(Class<?> kind) {
        List<Field> found = new ArrayList<>();
        for (Class<?> one = kind; one != Object.class; one = one.getSuperclass()) {
            for (Field field : one.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers())) continue;
                field.setAccessible(true);
                found.add(field);
            }
        }
        return found;
    }

    static void describe(Class<?> kind) throws Exception {
        Object action = null;
        for (Annotation one : kind.getAnnotations()) {
            if (one.annotationType().getSimpleName().equals("RocketMQAction")) action = one.annotationType().getMethod("value").invoke(one);
        }
        List<Object> shown = new ArrayList<>();
        for (Field field : fields(kind)) {
            shown.add(Arrays.asList(field.getName(), field.getType().getSimpleName(), field.isAnnotationPresent(CFNotNull.class)));
        }
        Map<String, Object> untouched = values(kind.getDeclaredConstructor().newInstance());
        print(object("kind", "class", "name", kind.getSimpleName(), "action", action, "fields", shown, "untouched", untouched));
    }

    // frames ------------------------------------------------------------------------------------------------------------------

    static String text() {
        return TEXTS[random.nextInt(TEXTS.length)];
    }

    static Object value(Class<?> type) {
        int pick = random.nextInt(6);
        if (type == int.class || type == Integer.class) return new int[] {0, -1, Integer.MAX_VALUE, Integer.MIN_VALUE, random.nextInt(), 7}[pick];
        if (type == long.class || type == Long.class) return new long[] {0, -1, Long.MAX_VALUE, Long.MIN_VALUE, random.nextLong(), 1L << 40}[pick];
        if (type == boolean.class || type == Boolean.class) return random.nextBoolean();
        if (type.isEnum()) return type.getEnumConstants()[random.nextInt(type.getEnumConstants().length)];
        return type == String.class ? text() : null;
    }

    static Map<String, Object> values(Object header) throws Exception {
        Map<String, Object> shown = new TreeMap<>();
        for (Field field : fields(header.getClass())) {
            Object value = field.get(header);
            if (value != null) shown.put(field.getName(), value.toString());
        }
        return shown;
    }

    static CommandCustomHeader filled(Class<? extends CommandCustomHeader> kind, int round) throws Exception {
        Constructor<? extends CommandCustomHeader> constructor = kind.getDeclaredConstructor();
        constructor.setAccessible(true);
        CommandCustomHeader header = constructor.newInstance();
        for (Field field : fields(kind)) {
            boolean absent = !field.getType().isPrimitive() && !field.isAnnotationPresent(CFNotNull.class) && (round == 0 || round > 1 && random.nextInt(3) == 0);
            if (!Modifier.isFinal(field.getModifiers())) field.set(header, absent ? null : value(field.getType()));
        }
        return header;
    }

    static void frame(Class<? extends CommandCustomHeader> kind, int round, boolean binary, boolean fast) throws Exception {
        CommandCustomHeader header = filled(kind, round);
        int code = binary ? (short) random.nextInt() : random.nextInt();
        RemotingCommand command = RemotingCommand.createRequestCommand(code, header);
        command.setSerializeTypeCurrentRPC(binary ? SerializeType.ROCKETMQ : SerializeType.JSON);
        command.setOpaque(random.nextInt());
        command.setFlag(random.nextInt(4));
        command.setVersion(binary ? (short) random.nextInt() : random.nextInt());
        command.setLanguage(LanguageCode.values()[random.nextInt(LanguageCode.values().length)]);
        if (random.nextBoolean()) command.setRemark(text());
        byte[] body = random.nextBoolean() ? text().getBytes(StandardCharsets.UTF_8) : null;
        command.setBody(body);
        byte[] whole;
        if (fast) {  // as NettyEncoder does
            ByteBuf buffer = Unpooled.buffer();
            command.fastEncodeHeader(buffer);
            if (body != null) buffer.writeBytes(body);
            whole = new byte[buffer.readableBytes()];
            buffer.readBytes(whole);
        } else {
            ByteBuffer buffer = command.encode();
            whole = new byte[buffer.remaining()];
            buffer.get(whole);
        }
        Map<String, Object> shown = facts(command);
        shown.put("kind", "frame");
        shown.put("class", kind.getSimpleName());
        shown.put("binary", binary);
        shown.put("way", fast ? "fast" : "encode");
        shown.put("values", values(header));
        shown.put("hex", hex(whole));
        print(shown);
    }

    static Map<String, Object> facts(RemotingCommand command) {
        String body = command.getBody() == null ? "" : hex(command.getBody());
        return object(
            "code", command.getCode(), "opaque", command.getOpaque(), "flag", command.getFlag(), "version", command.getVersion(), "language",
            command.getLanguage().getCode(), "remark", command.getRemark(), "body", body);
    }

    // stored messages, batches, ids, signatures -------------------------------------------------------------------------------------

    static InetSocketAddress host(boolean v6) throws Exception {
        byte[] address = new byte[v6 ? 16 : 4];
        random.nextBytes(address);
        return new InetSocketAddress(InetAddress.getByAddress(address), random.nextInt(65536));
    }

    static Map<String, String> properties() {
        Map<String, String> made = new HashMap<>();
        for (int i = random.nextInt(4); i > 0; i--) made.put("p" + random.nextInt(100), TEXTS[random.nextInt(7)]);
        return made;
    }

    static void stored(int round) throws Exception {
        MessageExt message = new MessageExt();
        message.setTopic(round % 3 == 0 ? "主题" : "TopicTest");
        message.setBody(text().getBytes(StandardCharsets.UTF_8));
        message.setQueueId(random.nextInt(100));
        message.setFlag(random.nextInt());
        message.setQueueOffset(random.nextLong() >>> 1);
        message.setCommitLogOffset(random.nextLong() >>> 1);
        message.setSysFlag(random.nextInt(4) << 2);
        message.setBornTimestamp(random.nextLong());
        message.setStoreTimestamp(random.nextLong());
        message.setReconsumeTimes(random.nextInt(20));
        message.setPreparedTransactionOffset(random.nextLong());
        message.setBornHost(host((round & 1) != 0));
        message.setStoreHost(host((round & 2) != 0));
        if ((round & 1) != 0) message.setBornHostV6Flag();
        if ((round & 2) != 0) message.setStoreHostAddressV6Flag();
        message.setBodyCRC(org.apache.rocketmq.common.UtilAll.crc32(message.getBody()));
        for (Map.Entry<String, String> one : properties().entrySet()) message.putUserProperty(one.getKey(), one.getValue());
        byte[] whole = MessageDecoder.encode(message, false);
        print(object("kind", "stored", "hex", hex(whole), "values", shown(MessageDecoder.decode(ByteBuffer.wrap(whole), true, false))));
    }

    static String address(SocketAddress host) {
        InetSocketAddress found = (InetSocketAddress) host;
        return hex(found.getAddress().getAddress()) + ":" + found.getPort();
    }

    static Map<String, Object> shown(MessageExt m) {
        if (m == null) return null;
        return object(
            "queueId", m.getQueueId(), "flag", m.getFlag(), "queueOffset", m.getQueueOffset(), "commitLogOffset", m.getCommitLogOffset(), "sysFlag", m.getSysFlag(),
            "bornTimestamp", m.getBornTimestamp(), "storeTimestamp", m.getStoreTimestamp(), "reconsumeTimes", m.getReconsumeTimes(), "preparedTransactionOffset",
            m.getPreparedTransactionOffset(), "bornHost", address(m.getBornHost()), "storeHost", address(m.getStoreHost()), "bodyCRC", m.getBodyCRC(), "topic", m.getTopic(),
            "body", hex(m.getBody()), "properties", m.getProperties(), "msgId", m.getMsgId());
    }

    static Map<String, Object> plain(Message m) {
        return object("flag", m.getFlag(), "body", hex(m.getBody()), "properties", m.getProperties());
    }

    static void batch(int size) {
        List<Message> messages = new ArrayList<>();
        List<Object> shown = new ArrayList<>();
        for (int i = 0; i < size; i++) {
            Message made = new Message("TopicTest", text().getBytes(StandardCharsets.UTF_8));
            made.setFlag(random.nextInt());
            for (Map.Entry<String, String> one : properties().entrySet()) made.putUserProperty(one.getKey(), one.getValue());
            messages.add(made);
            shown.add(plain(made));
        }
        print(object("kind", "batch", "hex", hex(MessageDecoder.encodeMessages(messages)), "values", shown));
    }

    static void ids(int count) throws Exception {
        for (int i = 0; i < count; i++) {
            InetSocketAddress host = host(i % 2 != 0);
            long offset = random.nextLong();
            String text = MessageDecoder.createMessageId(host, offset);
            print(object("kind", "id", "host", hex(host.getAddress().getAddress()), "port", host.getPort(), "offset", offset, "text", text));
        }
    }

    static void acl() throws Exception {
        TreeMap<String, String> ext = new TreeMap<>();
        for (int i = random.nextInt(6); i >= 0; i--) ext.put(new String[] {"A", "b", "topic", "名", "_x", "Zz", "0"}[random.nextInt(7)], text());
        ext.put("AccessKey", "ak" + random.nextInt());
        String secret = "secret-" + text();
        RemotingCommand command = RemotingCommand.createRequestCommand(11, null);
        command.setBody(random.nextBoolean() ? text().getBytes(StandardCharsets.UTF_8) : null);
        byte[] content = AclUtils.combineRequestContent(command, ext);
        String body = command.getBody() == null ? "" : hex(command.getBody());
        print(object("kind", "acl", "ext", ext, "body", body, "secret", secret, "signature", AclUtils.calSignature(content, secret)));
    }

    // what the other side wrote -----------------------------------------------------------------------------------------------------

    static Map<String, Object> decoded(JSONObject asked) {
        try {
            if (asked.containsKey("stored")) {
                return object("kind", "decoded", "values", shown(MessageDecoder.decode(ByteBuffer.wrap(bytes(asked.getString("stored"))), true, false)));
            }
            if (asked.containsKey("batch")) {
                List<Object> found = new ArrayList<>();
                for (Message one : MessageDecoder.decodeMessages(ByteBuffer.wrap(bytes(asked.getString("batch"))))) found.add(plain(one));
                return object("kind", "decoded", "values", found);
            }
            if (asked.containsKey("json")) {
                Object body = RemotingSerializable.decode(bytes(asked.getString("json")), Class.forName(BODIES.get(asked.getString("class"))));
                return object("kind", "decoded", "hex", hex(RemotingSerializable.encode(body)));
            }
            byte[] whole = bytes(asked.getString("frame"));
            RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(Arrays.copyOfRange(whole, 4, whole.length)));
            CommandCustomHeader header = command.decodeCommandCustomHeader(CLASSES.get(asked.getString("class")));
            Map<String, Object> shown = facts(command);
            shown.put("kind", "decoded");
            shown.put("values", values(header));
            return shown;
        } catch (Throwable why) {
            return object("kind", "decoded", "error", why.toString());
        }
    }
}
