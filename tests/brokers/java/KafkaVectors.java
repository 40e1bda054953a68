import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.requests.DescribeConfigsResponse;
import org.apache.kafka.common.requests.FindCoordinatorRequest;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourceType;

/**
 * Kafka's own message classes as a judge. Every message that the class path's jars define (their JSON files) is found with its class;
 * output is one JSON object a line, told apart by "k":
 *
 *   message  a message: its class, versions, or why it cannot be judged
 *   error    an error code; "retriable" and "refresh" (metadata is stale) say whether its exception is
 *   codes    an enumeration: number to name
 *   api      an api key, and the versions of the headers that stand before its requests and responses, by version
 *   back     one for each line "name TAB version TAB hex" of standard input: what Kafka read, and what it writes for that
 *   vector   a message filled by us, at each version: bytes, and the fields as its JsonConverter shows them ("refused": it will not be written)
 *   probe    single fields set or nulled in a filled message: whether Kafka writes it, path by path
 *
 *   java -cp ... KafkaVectors SEED RANDOM_VECTORS < ours
 */
public class KafkaVectors {
    static final ObjectMapper JSON = JsonMapper.builder().enable(JsonReadFeature.ALLOW_JAVA_COMMENTS).build();
    static final HexFormat HEX = HexFormat.of();
    static final String[] TEXTS = {"", "t", "flights", "\u00fcn\u00efcode \u4e16\u754c \ud83d\ude80", "a\u0000b", "x".repeat(150)};
    static final PrintWriter OUT = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), 1 << 16));

    enum Mode { PLAIN, HIGH, LOW, RANDOM }

    /** One definition and what is made of it. */
    record Known(String name, JsonNode spec, Class<?> type, Method toJson) { }

    static Random random;
    static Mode mode;

    public static void main(String[] args) throws Exception {
        Map<String, Known> all = find();
        numbers();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split("\t", -1);
            readBack(all.get(parts[0]), Short.parseShort(parts[1]), HEX.parseHex(parts[2]));
        }
        for (Known known : all.values()) {
            int[] span = span(known.spec.path("validVersions").asText());
            for (int version = span[0]; version <= span[1]; version++) {
                random = new Random(Long.parseLong(args[0]) * 31 + known.name.hashCode() + version);
                vectors(known, (short) version, Integer.parseInt(args[1]));
                probe(known, (short) version);
            }
        }
        OUT.flush();
    }

    // ---- what there is ---------------------------------------------------------------------------------------------------------

    static Map<String, Known> find() throws Exception {
        Map<String, Class<?>> converters = new HashMap<>();
        Map<String, JsonNode> specs = new TreeMap<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!path.endsWith(".jar") || !new File(path).getName().startsWith("kafka")) {
                continue;
            }
            try (JarFile jar = new JarFile(path)) {
                for (JarEntry entry : java.util.Collections.list(jar.entries())) {
                    String name = entry.getName();
                    if (name.matches("(common/message|common/metadata|message)/\\w+\\.json")) {
                        try (InputStream stream = jar.getInputStream(entry)) {
                            JsonNode spec = JSON.readTree(stream);
                            specs.put(spec.get("name").asText(), spec);
                        }
                    } else if (name.matches("org/apache/kafka/.*/(message|generated|metadata)/[^$/]*JsonConverter\\.class")) {
                        Class<?> converter = Class.forName(name.replace('/', '.').replace(".class", ""));
                        converters.put(converter.getSimpleName().replace("JsonConverter", ""), converter);
                    }
                }
            }
        }
        Map<String, Known> found = new TreeMap<>();
        for (Map.Entry<String, JsonNode> each : specs.entrySet()) {
            String name = each.getKey();
            int[] span = span(each.getValue().path("validVersions").asText());
            ObjectNode line = line("message", name).put("first", span[0]).put("last", span[1]);
            String className = name + (each.getValue().get("type").asText().matches("request|response|header") ? "Data" : "");
            Class<?> converter = converters.remove(className);
            if (converter == null) {
                if (span[1] >= span[0]) {
                    line.put("problem", "no class");
                }
            } else {
                Class<?> type = Class.forName(converter.getName().replace("JsonConverter", ""));
                found.put(name, new Known(name, each.getValue(), type, converter.getMethod("write", type, short.class, boolean.class)));
                line.put("class", type.getName());
            }
            OUT.println(line);
        }
        for (Class<?> left : converters.values()) {
            OUT.println(line("message", left.getName()).put("first", 0).put("last", 0).put("problem", "no definition"));
        }
        return found;
    }

    static void numbers() throws Exception {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            boolean refresh = error.exception() instanceof InvalidMetadataException;
            OUT.println(line("error", error.name()).put("code", error.code()).put("retriable", retriable).put("refresh", refresh));
        }
        codes("AclOperation", AclOperation.values(), "code");
        codes("AclPermission", AclPermissionType.values(), "code");
        codes("ResourceType", ResourceType.values(), "code");
        codes("PatternType", PatternType.values(), "code");
        codes("ConfigResourceType", ConfigResource.Type.values(), "id");
        codes("ConfigSource", DescribeConfigsResponse.ConfigSource.values(), "id");
        codes("CoordinatorType", FindCoordinatorRequest.CoordinatorType.values(), "id");
        codes("IsolationLevel", IsolationLevel.values(), "id");
        codes("ScramMechanism", ScramMechanism.values(), "type");
        for (ApiMessageType api : ApiMessageType.values()) {
            ObjectNode headers = JSON.createObjectNode();
            for (int version = api.lowestSupportedVersion(); version <= api.highestSupportedVersion(true); version++) {
                headers.putArray("" + version).add(api.requestHeaderVersion((short) version)).add(api.responseHeaderVersion((short) version));
            }
            OUT.println(line("api", api.name).put("key", api.apiKey()).set("headers", headers));
        }
    }

    static void codes(String name, Object[] values, String number) throws Exception {
        ObjectNode codes = JSON.createObjectNode();
        for (Object value : values) {
            Object code;
            try {
                code = value.getClass().getMethod(number).invoke(value);
            } catch (NoSuchMethodException none) {
                Field field = value.getClass().getDeclaredField(number);
                field.setAccessible(true);
                code = field.get(value);
            }
            codes.put(((Number) code).toString(), value.toString());
        }
        OUT.println(line("codes", name).set("codes", codes));
    }

    static ObjectNode line(String kind, String name) {
        return JSON.createObjectNode().put("k", kind).put("m", name);
    }

    static int[] span(String text) {
        if (text.isEmpty() || text.equals("none")) {
            return new int[] {1, 0};
        }
        if (text.endsWith("+")) {
            return new int[] {Integer.parseInt(text.substring(0, text.length() - 1)), 32767};
        }
        String[] ends = text.split("-");
        return new int[] {Integer.parseInt(ends[0]), Integer.parseInt(ends[ends.length - 1])};
    }

    static boolean within(JsonNode field, String key, int version) {
        int[] span = span(field.path(key).asText());
        return span[0] <= version && version <= span[1];
    }

    static boolean present(JsonNode field, int version) {
        return within(field, field.has("versions") ? "versions" : "taggedVersions", version);
    }

    // ---- bytes -----------------------------------------------------------------------------------------------------------------

    static byte[] write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("size and write disagree");
        }
        return buffer.array();
    }

    static void readBack(Known known, short version, byte[] bytes) throws Exception {
        ObjectNode line = line("back", known.name).put("v", version);
        try {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            Message message = (Message) known.type.getConstructor(Readable.class, short.class).newInstance(new ByteBufferAccessor(buffer), version);
            line.put("left", buffer.remaining());
            byte[] again = write(message, version);
            line.put("hex", java.util.Arrays.equals(bytes, again) ? "=" : HEX.formatHex(again));
            line.set("j", (JsonNode) known.toJson.invoke(null, message, version, false));
        } catch (InvocationTargetException error) {
            line.put("error", String.valueOf(error.getCause()));
        } catch (RuntimeException error) {
            line.put("error", error.toString());
        }
        OUT.println(line);
    }

    // ---- messages filled by us ---------------------------------------------------------------------------------------------------

    static void vectors(Known known, short version, int randoms) throws Exception {
        for (int i = -3; i < randoms; i++) {
            mode = i == -2 ? Mode.HIGH : i == -1 ? Mode.LOW : Mode.RANDOM;
            Message message;
            if (i == -3) {
                message = (Message) known.type.getConstructor().newInstance();
            } else {
                message = filled(known.type, known.spec.path("fields"), known.spec, version);
            }
            ObjectNode line = line("vector", known.name).put("v", version).put("i", i);
            try {
                line.put("hex", HEX.formatHex(write(message, version)));
                line.set("j", (JsonNode) known.toJson.invoke(null, message, version, false));
            } catch (RuntimeException error) {
                line.put("refused", error.toString());
            }
            OUT.println(line);
        }
    }

    static JsonNode children(JsonNode field, JsonNode root) {
        if (field.has("fields")) {
            return field.get("fields");
        }
        String type = field.get("type").asText().replace("[]", "");
        for (JsonNode struct : root.path("commonStructs")) {
            if (struct.get("name").asText().equals(type)) {
                return struct.get("fields");
            }
        }
        throw new IllegalStateException("no struct " + type);
    }

    static Field member(Class<?> type, JsonNode field) throws Exception {
        String name = field.get("name").asText();
        Field found = type.getDeclaredField(Character.toLowerCase(name.charAt(0)) + name.substring(1));
        found.setAccessible(true);
        return found;
    }

    static Message filled(Class<?> type, JsonNode fields, JsonNode root, int version) throws Exception {
        Message message = (Message) type.getConstructor().newInstance();
        for (JsonNode field : fields) {
            if (present(field, version)) {
                boolean nullable = within(field, "nullableVersions", version);
                boolean tagged = within(field, "taggedVersions", version);
                if (tagged && mode == Mode.RANDOM && random.nextInt(3) == 0) {
                    continue;
                }
                Field member = member(type, field);
                boolean none = nullable && (mode == Mode.LOW || mode == Mode.RANDOM && random.nextInt(4) == 0);
                member.set(message, none ? null : value(member, field, root, version));
            }
        }
        if (mode == Mode.RANDOM && random.nextInt(3) == 0 && within(root, "flexibleVersions", version)) {
            for (int tag : new int[] {20 + random.nextInt(5), 30 + random.nextInt(20000), Integer.MAX_VALUE - 1}) {
                message.unknownTaggedFields().add(new RawTaggedField(tag, bytes(random.nextInt(4) * 50)));
            }
        }
        return message;
    }

    static byte[] bytes(int size) {
        byte[] made = new byte[size];
        random.nextBytes(made);
        return made;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static Object value(Field member, JsonNode field, JsonNode root, int version) throws Exception {
        Class<?> type = member.getType();
        if (Collection.class.isAssignableFrom(type)) {
            Collection made = type == List.class ? new ArrayList<>() : (Collection) type.getConstructor().newInstance();
            int count = mode == Mode.LOW ? 0 : mode == Mode.RANDOM ? new int[] {0, 1, 1, 2, 3}[random.nextInt(5)] : 1;
            for (int i = 0; i < count; i++) {
                made.add(single(element(member), field, root, version));
            }
            return made;
        }
        return single(type, field, root, version);
    }

    static Class<?> element(Field member) {
        if (member.getGenericType() instanceof ParameterizedType list) {
            return (Class<?>) list.getActualTypeArguments()[0];
        }
        return (Class<?>) ((ParameterizedType) member.getType().getGenericSuperclass()).getActualTypeArguments()[0];
    }

    static Object single(Class<?> type, JsonNode field, JsonNode root, int version) throws Exception {
        if (Message.class.isAssignableFrom(type)) {
            return filled(type, children(field, root), root, version);
        }
        String kind = field.get("type").asText().replace("[]", "");
        if (type == boolean.class || type == Boolean.class) {
            return mode == Mode.RANDOM ? random.nextBoolean() : mode != Mode.LOW;
        }
        if (type == double.class || type == Double.class) {
            double[] choice = {0.0, -0.0, -1.5, 1e300, Double.NaN, Double.POSITIVE_INFINITY, Double.MIN_VALUE};
            return mode == Mode.RANDOM ? choice[random.nextInt(choice.length)] : mode == Mode.HIGH ? Double.MAX_VALUE : Double.NEGATIVE_INFINITY;
        }
        if (type == String.class) {
            return mode == Mode.RANDOM ? TEXTS[random.nextInt(TEXTS.length)] : mode == Mode.LOW ? "" : TEXTS[3];
        }
        if (type == Uuid.class) {
            return mode == Mode.LOW ? Uuid.ZERO_UUID : mode == Mode.HIGH ? new Uuid(-1, -1) : new Uuid(random.nextLong(), random.nextLong());
        }
        if (type == byte[].class) {
            return bytes(size());
        }
        if (type == ByteBuffer.class) {
            return ByteBuffer.wrap(bytes(size()));
        }
        if (kind.equals("records")) {        // their package differs between releases
            Class<?> records = Class.forName(type.getPackageName() + ".MemoryRecords");
            return records.getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes(size())));
        }
        return number(type, kind);
    }

    static int size() {
        return mode == Mode.LOW ? 0 : mode == Mode.RANDOM ? new int[] {0, 1, 5, 130}[random.nextInt(4)] : 300;
    }

    static Object number(Class<?> type, String kind) {
        int bits = kind.equals("uint16") ? 16 : kind.equals("uint32") ? 32 : Integer.parseInt(kind.substring(3));
        boolean signed = !kind.startsWith("u");
        long most = bits == 64 ? Long.MAX_VALUE : (1L << (signed ? bits - 1 : bits)) - 1;
        long least = signed ? -most - 1 : 0;
        long[] choice = {0, 1, signed ? -1 : 2, least, most, least + (random.nextLong() & most)};
        long n = mode == Mode.HIGH ? most : mode == Mode.LOW ? least : mode == Mode.PLAIN ? 5 : choice[random.nextInt(choice.length)];
        if (type == byte.class || type == Byte.class) {
            return (byte) n;
        }
        if (type == short.class || type == Short.class) {
            return (short) n;
        }
        return type == int.class || type == Integer.class ? (Object) (int) n : (Object) n;
    }

    // ---- what a version cannot carry -------------------------------------------------------------------------------------------

    static void probe(Known known, short version) throws Exception {
        mode = Mode.PLAIN;
        random.setSeed(version);
        byte[] base = write(filled(known.type, known.spec.path("fields"), known.spec, version), version);
        ObjectNode outcomes = JSON.createObjectNode();
        probe(known, version, base, known.type, known.spec.path("fields"), new ArrayList<>(), outcomes);
        if (!outcomes.isEmpty()) {
            OUT.println(line("probe", known.name).put("v", version).put("hex", HEX.formatHex(base)).set("r", outcomes));
        }
    }

    static void probe(Known known, short version, byte[] base, Class<?> type, JsonNode fields, List<Field> path, ObjectNode outcomes)
            throws Exception {
        for (JsonNode field : fields) {
            Field member = member(type, field);
            boolean reference = !member.getType().isPrimitive();
            Object usual = member.get(type.getConstructor().newInstance());
            if (!present(field, version)) {
                int there = span(field.path(field.has("versions") ? "versions" : "taggedVersions").asText())[0];
                mode = Mode.PLAIN;
                Object value = value(member, field, known.spec, there);
                mode = Mode.LOW;
                value = value.equals(usual) ? value(member, field, known.spec, there) : value;
                outcome(known, version, base, path, member, "set", value, outcomes);
                if (reference && usual != null) {
                    outcome(known, version, base, path, member, "null", null, outcomes);
                }
                continue;
            }
            if (reference) {
                outcome(known, version, base, path, member, "null", null, outcomes);
            }
            Class<?> inner = Collection.class.isAssignableFrom(member.getType()) ? element(member) : member.getType();
            if (Message.class.isAssignableFrom(inner)) {
                path.add(member);
                probe(known, version, base, inner, children(field, known.spec), path, outcomes);
                path.remove(path.size() - 1);
            }
        }
    }

    static void outcome(Known known, short version, byte[] base, List<Field> path, Field member, String what, Object value, ObjectNode outcomes)
            throws Exception {
        Constructor<?> reader = known.type.getConstructor(Readable.class, short.class);
        Message message = (Message) reader.newInstance(new ByteBufferAccessor(ByteBuffer.wrap(base)), version);
        Object owner = message;
        StringBuilder name = new StringBuilder();
        for (Field step : path) {
            name.append(step.getName()).append('.');
            owner = step.get(owner);
            owner = owner instanceof Collection<?> items ? items.iterator().next() : owner;
        }
        member.set(owner, value);
        String outcome;
        try {
            byte[] bytes = write(message, version);
            outcome = java.util.Arrays.equals(bytes, base) ? "=" : HEX.formatHex(bytes);
        } catch (RuntimeException error) {
            outcome = "!" + error.getClass().getSimpleName();
        }
        outcomes.put(name.append(member.getName()).append(' ').append(what).toString(), outcome);
    }
}
