import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.io.ByteArrayOutputStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.jute.BinaryOutputArchive;
import org.apache.jute.OutputArchive;
import org.apache.jute.Record;

/**
 * Fills every record class of a zookeeper-jute jar by reflection and prints, one JSON object a line, what was put in and the bytes
 * that the jar's own encoder makes of it: the judge of our schema and codec. Field order is taken from the encoder's calls.
 *
 *   java -cp zookeeper-jute-3.9.5.jar JuteVectors.java zookeeper-jute-3.9.5.jar > jute_vectors.jsonl
 */
public class JuteVectors {
    static final String[] CASES = {"full", "empty", "null", "low", "high", "text"};
    static int counter;

    public static void main(String[] args) throws Exception {
        TreeSet<String> names = new TreeSet<>();
        try (JarFile jar = new JarFile(Path.of(args[0]).toFile())) {
            for (Enumeration<JarEntry> all = jar.entries(); all.hasMoreElements(); ) {
                String name = all.nextElement().getName();
                if (name.matches("org/apache/zookeeper/(proto|data|txn)/[^$]*\\.class")) {
                    names.add(name.replace('/', '.').replace(".class", ""));
                }
            }
        }
        for (String name : names) {
            for (String which : CASES) {
                counter = 0;
                Record record = (Record) fill(Class.forName(name), which);
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                try {
                    record.serialize(BinaryOutputArchive.getArchive(bytes), "r");
                } catch (NullPointerException why) {
                    continue;  // a nested record cannot be null on the wire
                }
                System.out.println("{\"record\":\"" + name.replace("org.apache.zookeeper.", "") + "\",\"case\":\"" + which
                    + "\",\"value\":" + json(record) + ",\"hex\":\"" + hex(bytes.toByteArray()) + "\"}");
            }
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
        OutputArchive spy = (OutputArchive) java.lang.reflect.Proxy.newProxyInstance(JuteVectors.class.getClassLoader(),
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

    static String json(Object value) throws Exception {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof String) {
            StringBuilder out = new StringBuilder("\"");
            for (char c : ((String) value).toCharArray()) {
                out.append(c < 32 || c > 126 ? String.format("\\u%04x", (int) c) : String.valueOf(c));
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
        for (Field field : fields(value.getClass())) {
            parts.add("\"" + field.getName() + "\":" + json(field.get(value)));
        }
        return "{" + String.join(",", parts) + "}";
    }

    static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (byte b : bytes) {
            out.append(String.format("%02x", b));
        }
        return out.toString();
    }
}
