import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.File;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.zip.Adler32;
import java.util.zip.CheckedInputStream;
import org.apache.jute.BinaryInputArchive;
import org.apache.jute.BinaryOutputArchive;
import org.apache.jute.OutputArchive;
import org.apache.jute.Record;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.MultiOperationRecord;
import org.apache.zookeeper.MultiResponse;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.TxnLogEntry;
import org.apache.zookeeper.server.persistence.FileHeader;
import org.apache.zookeeper.server.persistence.FileSnap;
import org.apache.zookeeper.server.persistence.SnapStream;
import org.apache.zookeeper.server.util.SerializeUtils;
import org.apache.zookeeper.txn.MultiTxn;
import org.apache.zookeeper.txn.Txn;

/**
 * ZooKeeper's own classes as judges: jute's records, filled by reflection, the numbers of the API, and the readers of the server's files.
 *   vectors             every record, filled in six ways, and the bytes that jute's encoder makes of it
 *   random SEED COUNT   the same with random values, COUNT of each; MultiRequest and MultiResponse too
 *   reread              lines "record hex" in: what jute's decoder reads, and what its encoder makes of that again
 *   fields              name and type of every field of every record, in wire order
 *   numbers             error codes, operation codes, modes, event types …
 *   log FILE …          every transaction of these logs
 *   snapshot FILE       sessions, then every node of a snapshot, then its digest
 * Field order is taken from the encoder's calls.
 */
public class JuteJudge {
    static final String[] CASES = {"full", "empty", "null", "low", "high", "text"};
    static final String PACKAGE = "org.apache.zookeeper.";
    static final Random CHANCE = new Random();
    static int counter;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "vectors" -> vectors();
            case "random" -> random(Long.parseLong(args[1]), Integer.parseInt(args[2]));
            case "reread" -> reread();
            case "fields" -> schema();
            case "numbers" -> numbers();
            case "log" -> {
                for (String name : Arrays.copyOfRange(args, 1, args.length)) log(new File(name));
            }
            case "snapshot" -> snapshot(new File(args[1]));
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.flush();
        System.exit(0);
    }

    static TreeSet<String> records() throws Exception {
        TreeSet<String> names = new TreeSet<>();
        File file = new File(Stat.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        try (JarFile jar = new JarFile(file)) {
            for (Enumeration<JarEntry> all = jar.entries(); all.hasMoreElements(); ) {
                String name = all.nextElement().getName();
                if (name.matches("org/apache/zookeeper/(proto|data|txn)/[^$]*\\.class")) {
                    names.add(name.replace('/', '.').replace(".class", ""));
                }
            }
        }
        return names;
    }

    static void vectors() throws Exception {
        for (String name : records()) {
            for (String which : CASES) {
                counter = 0;
                vector(name, which, (Record) fill(Class.forName(name), which));
            }
        }
    }

    static void vector(String name, String which, Record record) throws Exception {
        byte[] bytes;
        try {
            bytes = bytes(record);
        } catch (NullPointerException why) {
            return;  // a nested record cannot be null on the wire
        }
        System.out.println("{\"record\":\"" + name.replace(PACKAGE, "") + "\",\"case\":\"" + which
            + "\",\"value\":" + json(record) + ",\"hex\":\"" + hex(bytes) + "\"}");
    }

    static byte[] bytes(Record record) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        record.serialize(BinaryOutputArchive.getArchive(bytes), "r");
        return bytes.toByteArray();
    }

    static void random(long seed, int count) throws Exception {
        CHANCE.setSeed(seed);
        for (String name : records()) {
            for (int i = 0; i < count; i++) {
                vector(name, "random", (Record) fill(Class.forName(name), "random"));
            }
        }
        for (int i = 0; i < count; i++) {
            multi();
        }
    }

    static void multi() throws Exception {
        List<Op> ops = new ArrayList<>();
        MultiResponse results = new MultiResponse();
        boolean reads = CHANCE.nextInt(4) == 0;
        for (int n = CHANCE.nextInt(7); n > 0; n--) {
            String path = "/" + text();
            byte[] data = (byte[]) value(byte[].class, "random");
            List<ACL> acl = List.of((ACL) fill(ACL.class, "random"));
            Stat stat = (Stat) fill(Stat.class, "random");
            if (reads) {
                ops.add(CHANCE.nextBoolean() ? Op.getData(path) : Op.getChildren(path));
            } else {
                CreateMode mode = CreateMode.values()[CHANCE.nextInt(CreateMode.values().length)];
                switch (CHANCE.nextInt(5)) {
                    case 0 -> ops.add(Op.delete(path, CHANCE.nextInt()));
                    case 1 -> ops.add(Op.setData(path, data, CHANCE.nextInt()));
                    case 2 -> ops.add(Op.check(path, CHANCE.nextInt()));
                    default -> ops.add(mode.isTTL() ? Op.create(path, data, acl, mode, 1 + CHANCE.nextInt(1 << 30)) : Op.create(path, data, acl, mode));
                }
            }
            switch (CHANCE.nextInt(8)) {
                case 0 -> results.add(new OpResult.CheckResult());
                case 1 -> results.add(new OpResult.SetDataResult(stat));
                case 2 -> results.add(new OpResult.CreateResult(path));
                case 3 -> results.add(new OpResult.CreateResult(path, stat));
                case 4 -> results.add(new OpResult.DeleteResult());
                case 5 -> results.add(new OpResult.GetDataResult(data, stat));
                case 6 -> results.add(new OpResult.GetChildrenResult(List.of(path, text())));
                default -> results.add(new OpResult.ErrorResult(-CHANCE.nextInt(130)));
            }
        }
        MultiOperationRecord request = new MultiOperationRecord(ops);
        List<String> shown = new ArrayList<>();
        for (Op op : ops) {
            shown.add("{\"type\":" + op.getType() + ",\"record\":" + json(op.toRequestRecord()) + "}");
        }
        System.out.println("{\"record\":\"MultiRequest\",\"value\":[" + String.join(",", shown) + "],\"hex\":\"" + hex(bytes(request)) + "\"}");
        shown.clear();
        for (OpResult result : results) {
            shown.add("{\"type\":" + result.getType() + ",\"record\":" + json(record(result)) + "}");
        }
        System.out.println("{\"record\":\"MultiResponse\",\"value\":[" + String.join(",", shown) + "],\"hex\":\"" + hex(bytes(results)) + "\"}");
    }

    /** What a result holds, by its getters. */
    static Object record(OpResult result) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Method method : result.getClass().getDeclaredMethods()) {
            if (method.getName().startsWith("get") && method.getParameterCount() == 0) {
                Object value = method.invoke(result);
                if (value != null) {
                    found.put(method.getName().substring(3, 4).toLowerCase() + method.getName().substring(4), value);
                }
            }
        }
        return found;
    }

    static void reread() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.replace("\"", "").split(" ");
            byte[] bytes = unhex(words.length > 1 ? words[1] : "");
            Record record = switch (words[0]) {
                case "MultiRequest" -> new MultiOperationRecord();
                case "MultiResponse" -> new MultiResponse();
                default -> (Record) Class.forName(PACKAGE + words[0]).getDeclaredConstructor().newInstance();
            };
            ByteArrayInputStream source = new ByteArrayInputStream(bytes);
            record.deserialize(BinaryInputArchive.getArchive(source), "r");
            System.out.println("{\"record\":\"" + words[0] + "\",\"left\":" + source.available()
                + (words[0].startsWith("Multi") ? "" : ",\"value\":" + json(record)) + ",\"hex\":\"" + hex(bytes(record)) + "\"}");
        }
    }

    static void schema() throws Exception {
        for (String name : records()) {
            List<String> shown = new ArrayList<>();
            for (Field field : fields(Class.forName(name))) {
                String type = field.getGenericType().getTypeName().replaceAll("[a-z.]*\\.(?=[A-Z])", "");
                shown.add("[\"" + field.getName() + "\",\"" + type + "\"]");
            }
            System.out.println("{\"record\":\"" + name.replace(PACKAGE, "") + "\",\"fields\":[" + String.join(",", shown) + "]}");
        }
    }

    static void numbers() throws Exception {
        for (KeeperException.Code code : KeeperException.Code.values()) {
            number("error", code.name(), code.intValue());
        }
        for (Field field : ZooDefs.OpCode.class.getFields()) {
            number("operation", field.getName(), field.getInt(null));
        }
        for (Field field : ZooDefs.Perms.class.getFields()) {
            number("Perms", field.getName(), field.getInt(null));
        }
        for (CreateMode mode : CreateMode.values()) {
            number("CreateMode", mode.name(), mode.toFlag());
        }
        for (AddWatchMode mode : AddWatchMode.values()) {
            number("AddWatchMode", mode.name(), mode.getMode());
        }
        for (Watcher.WatcherType type : Watcher.WatcherType.values()) {
            number("WatcherType", type.name(), type.getIntValue());
        }
        for (Watcher.Event.EventType type : Watcher.Event.EventType.values()) {
            number("EventType", type.name(), type.getIntValue());
        }
        for (Watcher.Event.KeeperState state : Watcher.Event.KeeperState.values()) {
            number("KeeperState", state.name(), state.getIntValue());
        }
    }

    static void number(String kind, String name, int number) {
        System.out.println("{\"kind\":\"" + kind + "\",\"name\":\"" + name + "\",\"number\":" + number + "}");
    }

    /** As the server's own tools read it: FileTxnLog's frame of checksum, length, transaction, end. */
    static void log(File file) throws Exception {
        try (FileInputStream source = new FileInputStream(file)) {
            BinaryInputArchive in = BinaryInputArchive.getArchive(source);
            FileHeader header = new FileHeader();
            header.deserialize(in, "fileheader");
            System.out.println("{\"magic\":" + header.getMagic() + ",\"version\":" + header.getVersion() + ",\"dbid\":" + header.getDbid() + "}");
            while (true) {
                long sum;
                byte[] bytes;
                try {
                    sum = in.readLong("crcvalue");
                    bytes = in.readBuffer("txnEntry");
                } catch (EOFException end) {
                    return;
                }
                if (bytes.length == 0) {
                    return;
                }
                Adler32 found = new Adler32();
                found.update(bytes, 0, bytes.length);
                if (sum != found.getValue() || in.readByte("EOR") != 'B') {
                    throw new IllegalStateException("a broken entry");
                }
                TxnLogEntry entry = SerializeUtils.deserializeTxn(bytes);
                Record txn = entry.getTxn();
                StringBuilder parts = new StringBuilder();
                if (txn instanceof MultiTxn multi) {
                    for (Txn part : multi.getTxns()) {
                        parts.append(parts.length() == 0 ? "" : ",").append(part.getType());
                    }
                }
                System.out.println("{\"header\":" + json(entry.getHeader()) + ",\"record\":\"" + (txn == null ? "" : txn.getClass().getSimpleName())
                    + "\",\"txn\":" + json(txn) + ",\"parts\":[" + parts + "],\"digest\":" + json(entry.getDigest()) + "}");
            }
        }
    }

    static void snapshot(File file) throws Exception {
        DataTree tree = new DataTree();
        Map<Long, Integer> sessions = new HashMap<>();
        try (CheckedInputStream source = SnapStream.getInputStream(file)) {
            BinaryInputArchive in = BinaryInputArchive.getArchive(source);
            FileSnap.deserialize(tree, sessions, in);
            SnapStream.checkSealIntegrity(source, in);
            if (tree.deserializeZxidDigest(in, 0)) {
                SnapStream.checkSealIntegrity(source, in);
            }
            if (tree.deserializeLastProcessedZxid(in)) {
                SnapStream.checkSealIntegrity(source, in);
            }
        }
        System.out.println("{\"sessions\":" + json(new TreeMap<>(sessions)) + "}");
        node(tree, "");
        DataTree.ZxidDigest digest = tree.getDigestFromLoadedSnapshot();
        System.out.println("{\"zxid\":" + digest.getZxid() + ",\"digest\":" + digest.getDigest() + ",\"last\":" + tree.lastProcessedZxid
            + ",\"computed\":" + tree.getTreeDigest() + "}");
    }

    static void node(DataTree tree, String path) throws Exception {
        DataNode node = tree.getNode(path);
        System.out.println("{\"path\":" + json(path) + ",\"data\":" + json(node.getData()) + ",\"acl\":" + json(tree.getACL(node))
            + ",\"stat\":" + json(node.stat) + "}");
        for (String child : new TreeSet<>(node.getChildren())) {
            node(tree, path + "/" + child);
        }
    }

    static Object fill(Class<?> type, String which) throws Exception {
        Object record = type.getDeclaredConstructor().newInstance();
        for (Field field : fields(type)) {
            field.set(record, value(field.getGenericType(), which));
        }
        return record;
    }

    /** In wire order: the order of the encoder's write calls, told by the tags that it names. */
    static List<Field> fields(Class<?> type) throws Exception {
        List<Field> declared = new ArrayList<>();
        for (Field field : type.getDeclaredFields()) {
            if (!java.lang.reflect.Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                declared.add(field);
            }
        }
        List<String> order = new ArrayList<>();
        OutputArchive spy = (OutputArchive) java.lang.reflect.Proxy.newProxyInstance(JuteJudge.class.getClassLoader(),
            new Class<?>[] {OutputArchive.class}, (proxy, method, values) -> {
                String called = method.getName();
                if (called.startsWith("write") || called.equals("startVector")) {
                    order.add((String) values[values.length - 1]);
                }
                return null;
            });
        ((Record) type.getDeclaredConstructor().newInstance()).serialize(spy, "r");
        List<Field> sorted = new ArrayList<>();
        for (String tag : order) {
            for (Field field : declared) {
                if (field.getName().equals(tag)) {
                    sorted.add(field);
                }
            }
        }
        if (sorted.size() != declared.size()) {
            throw new IllegalStateException(type + ": " + order);
        }
        return sorted;
    }

    static Object value(Type type, String which) throws Exception {
        counter++;
        if (which.equals("random")) {
            return random(type);
        }
        if (type == int.class) {
            return which.equals("low") ? Integer.MIN_VALUE : which.equals("high") ? Integer.MAX_VALUE : 1000 + counter;
        }
        if (type == long.class) {
            return which.equals("low") ? Long.MIN_VALUE : which.equals("high") ? Long.MAX_VALUE : (counter << 40L) + counter;
        }
        if (type == boolean.class) {
            return !which.equals("low") && !which.equals("empty");
        }
        if (type == String.class) {
            switch (which) {
                case "null": return null;
                case "empty": return "";
                case "text": return new String[] {"/\u00e9\u4e2d", "\ud83d\ude00", "x\u0000y", "\ufffd\u07ff\u0800"}[counter % 4];
                default: return "/node-" + counter;
            }
        }
        if (type == byte[].class) {
            return which.equals("null") ? null : which.equals("empty") ? new byte[0] : new byte[] {0, (byte) counter, (byte) 0xff, -128};
        }
        if (type instanceof ParameterizedType) {
            if (which.equals("null")) {
                return null;
            }
            List<Object> list = new ArrayList<>();
            Type item = ((ParameterizedType) type).getActualTypeArguments()[0];
            for (int i = 0; i < (which.equals("empty") ? 0 : 3); i++) {
                list.add(value(item, which));
            }
            return list;
        }
        return fill((Class<?>) type, which);
    }

    static Object random(Type type) throws Exception {
        boolean rare = CHANCE.nextInt(12) == 0;
        if (type == int.class) {
            return rare ? CHANCE.nextBoolean() ? Integer.MIN_VALUE : Integer.MAX_VALUE : CHANCE.nextInt();
        }
        if (type == long.class) {
            return rare ? CHANCE.nextBoolean() ? Long.MIN_VALUE : Long.MAX_VALUE : CHANCE.nextLong();
        }
        if (type == boolean.class) {
            return CHANCE.nextBoolean();
        }
        if (type == String.class) {
            return rare ? null : text();
        }
        if (type == byte[].class) {
            byte[] bytes = new byte[rare ? 70000 : CHANCE.nextInt(40)];
            CHANCE.nextBytes(bytes);
            return CHANCE.nextInt(12) == 0 ? null : bytes;
        }
        if (type instanceof ParameterizedType list) {
            List<Object> items = new ArrayList<>();
            for (int i = rare ? 300 : CHANCE.nextInt(5); i > 0; i--) {
                items.add(random(list.getActualTypeArguments()[0]));
            }
            return CHANCE.nextInt(12) == 0 ? null : items;
        }
        return fill((Class<?>) type, "random");
    }

    static String text() {
        StringBuilder text = new StringBuilder();
        for (int i = CHANCE.nextInt(20); i > 0; i--) {
            switch (CHANCE.nextInt(40)) {
                case 0 -> text.appendCodePoint(0x10000 + CHANCE.nextInt(0x100000));
                case 1 -> text.append((char) (0x800 + CHANCE.nextInt(0xd000)));
                case 2 -> text.append((char) (0x80 + CHANCE.nextInt(0x780)));
                case 3 -> text.append((char) (0xd800 + CHANCE.nextInt(0x800)));
                case 4 -> text.append((char) CHANCE.nextInt(0x20));
                default -> text.append((char) (0x20 + CHANCE.nextInt(0x5f)));
            }
        }
        return text.toString();
    }

    static String json(Object value) throws Exception {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof String) {
            StringBuilder out = new StringBuilder("\"");
            for (char c : ((String) value).toCharArray()) {
                out.append(c < 32 || c > 126 || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
            }
            return out.append('"').toString();
        }
        if (value instanceof byte[]) {
            return "{\"hex\":\"" + hex((byte[]) value) + "\"}";
        }
        List<String> parts = new ArrayList<>();
        if (value instanceof List) {
            for (Object item : (List<?>) value) {
                parts.add(json(item));
            }
            return "[" + String.join(",", parts) + "]";
        }
        if (value instanceof Map) {
            for (Map.Entry<?, ?> item : ((Map<?, ?>) value).entrySet()) {
                parts.add("\"" + item.getKey() + "\":" + json(item.getValue()));
            }
            return "{" + String.join(",", parts) + "}";
        }
        for (Field field : fields(value.getClass())) {
            parts.add("\"" + field.getName() + "\":" + json(field.get(value)));
        }
        return "{" + String.join(",", parts) + "}";
    }

    static String hex(byte[] bytes) {
        return java.util.HexFormat.of().formatHex(bytes);
    }

    static byte[] unhex(String text) {
        return java.util.HexFormat.of().parseHex(text);
    }
}
