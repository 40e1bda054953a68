import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import java.util.zip.ZipFile;
import org.apache.pulsar.common.api.proto.BaseCommand;
import org.apache.pulsar.common.api.proto.BrokerEntryMetadata;
import org.apache.pulsar.common.api.proto.CompressionType;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.api.proto.SingleMessageMetadata;
import org.apache.pulsar.common.compression.CompressionCodec;
import org.apache.pulsar.common.compression.CompressionCodecProvider;
import org.apache.pulsar.common.intercept.BrokerEntryMetadataInterceptor;
import org.apache.pulsar.common.protocol.ByteBufPair;
import org.apache.pulsar.common.protocol.Commands;
import com.scurrilous.circe.checksum.Crc32cIntChecksum;

/**
 * Pulsar's generated classes and its Commands as judges of our schema, our messages and our frames.
 *   schema                 every message with its fields (number, type, label, default), every enum with its values
 *   random SEED COUNT      COUNT random fillings of every command, and of every other message: bytes and values
 *   reread                 {"message", "hex"} in: the values that the class reads, and the bytes that it makes of them again
 *   frames SEED COUNT      SEND and MESSAGE frames: checksum or not, broker entry metadata or not, single or batch, every codec
 *   reread-frames          {"hex"} in: what Commands reads of a frame
 * Several of these in one run: with "then" between them, and {"then": true} between what they print.
 * Values are keyed by field number: the classes keep no names.
 */
public class PulsarWire {
    static final ObjectMapper JSON = new ObjectMapper().configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
    static final String PACKAGE = "org.apache.pulsar.common.api.proto.";
    static final Random CHANCE = new Random();
    static final Map<Class<?>, List<Slot>> SLOTS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        List<String> command = new ArrayList<>();
        for (String word : args) {
            if (word.equals("then")) {
                run(command.toArray(new String[0]));
                command.clear();
                System.out.println("{\"then\": true}");
            } else {
                command.add(word);
            }
        }
        run(command.toArray(new String[0]));
        System.exit(0);
    }

    static void run(String[] args) throws Exception {
        switch (args[0]) {
            case "schema" -> schema();
            case "random" -> random(Long.parseLong(args[1]), Integer.parseInt(args[2]));
            case "reread" -> reread();
            case "frames" -> frames(Long.parseLong(args[1]), Integer.parseInt(args[2]));
            case "reread-frames" -> rereadFrames();
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void print(Object... pairs) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        System.out.println(JSON.writeValueAsString(line));
    }

    // ---- what the classes are -------------------------------------------------------------------------------------------

    /** One field: how it is called here, and whether it repeats or must be there. */
    static class Slot {
        String constant;
        String name;
        int number;
        int wire;
        boolean repeated;
        boolean required;
        Class<?> type;
        Method has, get, set, add, at, count;
    }

    static List<Class<?>> classes(boolean enums) throws Exception {
        File jar = new File(BaseCommand.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        TreeSet<String> names = new TreeSet<>();
        try (ZipFile zip = new ZipFile(jar)) {
            for (var entries = zip.entries(); entries.hasMoreElements();) {
                String name = entries.nextElement().getName().replace('/', '.');
                if (name.startsWith(PACKAGE) && name.endsWith(".class") && !name.contains("LightProto")
                    && !name.matches(".*\\.(Markers|MarkerType|ReplicatedSubscriptions|ClusterMessageId|MarkersMessageIdData).*")
                    && !name.endsWith("Case.class")) {  // which member of a oneof is set
                    names.add(name.substring(0, name.length() - 6));
                }
            }
        }
        List<Class<?>> found = new ArrayList<>();
        for (String name : names) {
            Class<?> kind = Class.forName(name);
            if (kind.isEnum() == enums) {
                found.add(kind);
            }
        }
        return found;
    }

    static String plain(Class<?> kind) {
        return kind.getName().substring(PACKAGE.length());
    }

    static List<Slot> slots(Class<?> kind) throws Exception {
        if (SLOTS.containsKey(kind)) {
            return SLOTS.get(kind);
        }
        List<Slot> found = new ArrayList<>();
        SLOTS.put(kind, found);
        Map<String, Method> methods = new HashMap<>();
        for (Method method : kind.getMethods()) {
            Class<?>[] parameters = method.getParameterTypes();
            if (parameters.length == 0 || (parameters.length == 1 && parameters[0] != ByteBuf.class)) {
                methods.put(method.getName() + "/" + parameters.length, method);
            }
        }
        List<Field> since = new ArrayList<>();
        Map<String, Integer> statics = new HashMap<>();
        for (Field field : kind.getDeclaredFields()) {
            field.setAccessible(true);
            if (Modifier.isStatic(field.getModifiers()) && field.getType() == int.class) {
                statics.put(field.getName(), field.getInt(null));
            }
        }
        for (Field field : kind.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                since.add(field);
            } else if (field.getName().endsWith("_FIELD_NUMBER")) {
                Slot slot = new Slot();
                slot.constant = field.getName().substring(1, field.getName().length() - "_FIELD_NUMBER".length());
                slot.number = statics.get(field.getName());
                slot.wire = statics.get("_" + slot.constant + "_TAG") & 7;
                slot.name = since.get(0).getName();
                String cap = cap(slot.name);
                slot.count = methods.get("get" + cap + "Count/0");
                slot.repeated = slot.count != null && since.size() > 1;
                if (slot.repeated) {
                    for (String name : methods.keySet()) {
                        if (name.matches("get.*At/1")) {
                            String one = name.substring(3, name.length() - 4);
                            if ((one + "s").equals(cap) || (one + "es").equals(cap) || one.replaceAll("y$", "ies").equals(cap)) {
                                slot.at = methods.get(name);
                                slot.add = methods.containsKey("add" + one + "/0") ? methods.get("add" + one + "/0") : methods.get("add" + one + "/1");
                            }
                        }
                    }
                    slot.type = slot.at.getReturnType();
                } else {
                    slot.has = methods.get("has" + cap + "/0");
                    slot.get = methods.getOrDefault("get" + cap + "/0", methods.get("is" + cap + "/0"));
                    slot.set = methods.getOrDefault("set" + cap + "/1", methods.get("set" + cap + "/0"));
                    slot.type = slot.get.getReturnType();
                    int index = found.size();
                    Integer mask = statics.get("_" + slot.constant + "_MASK");
                    Integer required = statics.get("_REQUIRED_FIELDS_MASK" + index / 32);
                    slot.required = mask != null && required != null && (required & mask) != 0;
                }
                found.add(slot);
                since.clear();
            }
        }
        return found;
    }

    static String cap(String name) {
        return Character.toUpperCase(name.charAt(0)) + name.substring(1);
    }

    static boolean isMessage(Class<?> type) {
        return type.getName().startsWith(PACKAGE) && !type.isEnum();
    }

    static void schema() throws Exception {
        for (Class<?> kind : classes(false)) {
            List<Object> fields = new ArrayList<>();
            for (Slot slot : slots(kind)) {
                Map<String, Object> field = new LinkedHashMap<>();
                field.put("name", slot.constant);
                field.put("number", slot.number);
                field.put("wire", slot.wire);
                field.put("label", slot.repeated ? "repeated" : slot.required ? "required" : "optional");
                field.put("type", slot.type.getName().startsWith(PACKAGE) ? plain(slot.type) : slot.type.getSimpleName());
                if (!slot.repeated && !isMessage(slot.type)) {
                    try {
                        Object value = slot.get.invoke(kind.getDeclaredConstructor().newInstance());
                        field.put("default", value instanceof Enum<?> item ? item.name() : value);
                    } catch (InvocationTargetException none) {
                        field.put("default", null);  // a getter without a default throws
                    }
                }
                fields.add(field);
            }
            print("message", plain(kind), "fields", fields);
        }
        for (Class<?> kind : classes(true)) {
            Map<String, Object> values = new LinkedHashMap<>();
            for (Object item : kind.getEnumConstants()) {
                values.put(((Enum<?>) item).name(), kind.getMethod("getValue").invoke(item));
            }
            print("enum", plain(kind), "values", values);
        }
    }

    // ---- random messages ------------------------------------------------------------------------------------------------

    static void random(long seed, int count) throws Exception {
        CHANCE.setSeed(seed);
        for (Slot command : slots(BaseCommand.class)) {
            if (command.number == 1) {
                continue;
            }
            for (int i = 0; i < count; i++) {
                BaseCommand base = new BaseCommand();
                base.setType(BaseCommand.Type.valueOf(command.number));
                fill(command.set.invoke(base), 0);
                vector(base);
            }
        }
        for (Class<?> kind : classes(false)) {
            for (int i = 0; i < count && kind != BaseCommand.class; i++) {
                Object message = kind.getDeclaredConstructor().newInstance();
                fill(message, 0);
                vector(message);
            }
        }
    }

    static void vector(Object message) throws Exception {
        print("message", plain(message.getClass()), "value", value(message), "hex", hex(bytes(message)));
    }

    static byte[] bytes(Object message) throws Exception {
        return (byte[]) message.getClass().getMethod("toByteArray").invoke(message);
    }

    static void fill(Object message, int depth) throws Exception {
        for (Slot slot : slots(message.getClass())) {
            boolean child = isMessage(slot.type);
            if (slot.repeated) {
                for (int n = depth > 2 ? 0 : CHANCE.nextInt(4); n > 0; n--) {
                    if (slot.add.getParameterCount() == 0) {
                        fill(slot.add.invoke(message), depth + 1);
                    } else {
                        slot.add.invoke(message, scalar(slot.type));
                    }
                }
            } else if (slot.required || (CHANCE.nextInt(3) > 0 && (!child || depth < 3))) {
                if (child) {
                    fill(slot.set.invoke(message), depth + 1);
                } else {
                    slot.set.invoke(message, scalar(slot.type));
                }
            }
        }
    }

    static Object scalar(Class<?> type) {
        boolean rare = CHANCE.nextInt(6) == 0;
        if (type == int.class) {
            return rare ? new int[] {0, -1, Integer.MIN_VALUE, Integer.MAX_VALUE}[CHANCE.nextInt(4)] : CHANCE.nextInt() >>> CHANCE.nextInt(32);
        }
        if (type == long.class) {
            return rare ? new long[] {0, -1, Long.MIN_VALUE, Long.MAX_VALUE}[CHANCE.nextInt(4)] : CHANCE.nextLong() >>> CHANCE.nextInt(64);
        }
        if (type == boolean.class) {
            return CHANCE.nextBoolean();
        }
        if (type == double.class) {
            return rare ? new double[] {0, -0.0, Double.NaN, Double.NEGATIVE_INFINITY}[CHANCE.nextInt(4)] : CHANCE.nextGaussian() * 1e9;
        }
        if (type == byte[].class) {
            byte[] bytes = new byte[rare ? 300 : CHANCE.nextInt(20)];
            CHANCE.nextBytes(bytes);
            return bytes;
        }
        if (type == String.class) {
            StringBuilder text = new StringBuilder();
            for (int i = rare ? 200 : CHANCE.nextInt(12); i > 0; i--) {
                text.appendCodePoint(switch (CHANCE.nextInt(20)) {
                    case 0 -> 0x10000 + CHANCE.nextInt(0x100000);
                    case 1 -> 0x800 + CHANCE.nextInt(0xd000);
                    case 2 -> 0x80 + CHANCE.nextInt(0x780);
                    case 3 -> CHANCE.nextInt(0x20);
                    default -> 0x20 + CHANCE.nextInt(0x5f);
                });
            }
            return text.toString();
        }
        if (type.isEnum()) {
            return type.getEnumConstants()[CHANCE.nextInt(type.getEnumConstants().length)];
        }
        throw new IllegalStateException(type.getName());
    }

    static Object value(Object found) throws Exception {
        if (found instanceof byte[] bytes) {
            return Base64.getEncoder().encodeToString(bytes);
        }
        if (found instanceof Double number && !Double.isFinite(number)) {
            return String.valueOf(number);
        }
        if (found instanceof Enum<?> item) {
            return item.name();
        }
        if (!isMessage(found.getClass())) {
            return found;
        }
        Map<String, Object> shown = new LinkedHashMap<>();
        for (Slot slot : slots(found.getClass())) {
            if (slot.repeated) {
                List<Object> items = new ArrayList<>();
                int count = (int) slot.count.invoke(found);
                for (int i = 0; i < count; i++) {
                    items.add(value(slot.at.invoke(found, i)));
                }
                if (count > 0) {
                    shown.put(String.valueOf(slot.number), items);
                }
            } else if ((boolean) slot.has.invoke(found)) {
                shown.put(String.valueOf(slot.number), value(slot.get.invoke(found)));
            }
        }
        return shown;
    }

    static void reread() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            var asked = JSON.readTree(line);
            Object message = Class.forName(PACKAGE + asked.get("message").asText()).getDeclaredConstructor().newInstance();
            byte[] bytes = HexFormat.of().parseHex(asked.get("hex").asText());
            message.getClass().getMethod("parseFrom", byte[].class).invoke(message, (Object) bytes);
            Object copy = message.getClass().getDeclaredConstructor().newInstance();
            message.getClass().getMethod("copyFrom", message.getClass()).invoke(copy, message);
            print("message", plain(message.getClass()), "value", value(message), "hex", hex(bytes(copy)));
        }
    }

    // ---- frames ---------------------------------------------------------------------------------------------------------

    static class Stamp implements BrokerEntryMetadataInterceptor {
        @Override
        public BrokerEntryMetadata intercept(BrokerEntryMetadata metadata) {
            return metadata.setBrokerTimestamp(CHANCE.nextLong() >>> 20).setIndex(CHANCE.nextLong() >>> 30);
        }

        @Override
        public BrokerEntryMetadata interceptWithNumberOfMessages(BrokerEntryMetadata metadata, int messages) {
            return intercept(metadata);
        }
    }

    static void frames(long seed, int count) throws Exception {
        CHANCE.setSeed(seed);
        for (int i = 0; i < count; i++) {
            MessageMetadata metadata = new MessageMetadata();
            fill(metadata, 0);
            boolean encrypted = CHANCE.nextInt(4) == 0;
            if (!encrypted) {
                metadata.clearEncryptionKeys();
            } else if (metadata.getEncryptionKeysCount() == 0) {
                metadata.addEncryptionKey().setKey("k").setValue(new byte[] {1, 2});
            }
            List<Object> messages = new ArrayList<>();
            boolean batch = CHANCE.nextBoolean();
            ByteBuf plain = Unpooled.buffer();
            if (batch) {
                metadata.setNumMessagesInBatch(1 + CHANCE.nextInt(5));
                for (int n = metadata.getNumMessagesInBatch(); n > 0; n--) {
                    SingleMessageMetadata single = new SingleMessageMetadata();
                    fill(single, 0);
                    byte[] payload = (byte[]) scalar(byte[].class);
                    Commands.serializeSingleMessageInBatchWithPayload(single, Unpooled.wrappedBuffer(payload), plain);
                    messages.add(Map.of("metadata", value(single), "payload", value(payload)));
                }
            } else {
                metadata.clearNumMessagesInBatch();
                plain.writeBytes((byte[]) scalar(byte[].class));
            }
            metadata.setUncompressedSize(plain.readableBytes());
            String whole = hex(bytesOf(plain));
            CompressionType type = CompressionType.values()[CHANCE.nextInt(CompressionType.values().length)];
            metadata.setCompression(type);
            ByteBuf packed = Unpooled.wrappedBuffer(bytesOf(CompressionCodecProvider.getCompressionCodec(type).encode(plain)));
            String payload = hex(bytesOf(packed));
            Commands.ChecksumType sum = CHANCE.nextInt(4) == 0 ? Commands.ChecksumType.None : Commands.ChecksumType.Crc32c;
            ByteBufPair frame;
            boolean stamped = false;
            if (CHANCE.nextBoolean()) {
                frame = Commands.newSend(CHANCE.nextInt(1000), CHANCE.nextInt(1000), 1, sum, metadata, packed);
            } else {
                ByteBuf entry = Commands.serializeMetadataAndPayload(sum, metadata, packed);
                stamped = CHANCE.nextBoolean();
                if (stamped) {
                    entry = Commands.addBrokerEntryMetadata(entry, java.util.Set.of(new Stamp()), 1);
                }
                long[] acks = CHANCE.nextBoolean() ? null : new long[] {CHANCE.nextLong(), -1};
                frame = Commands.newMessage(CHANCE.nextInt(1000), CHANCE.nextLong(), 7, -1, CHANCE.nextInt(3), entry, acks);
            }
            print("metadata", value(metadata), "batch", batch, "messages", messages, "payload", payload, "plain", whole, "stamped", stamped,
                "checksum", sum == Commands.ChecksumType.Crc32c, "codec", type.name(), "encrypted", encrypted,
                "hex", hex(bytesOf(ByteBufPair.coalesce(frame))));
        }
    }

    static void rereadFrames() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteBuf frame = Unpooled.wrappedBuffer(HexFormat.of().parseHex(JSON.readTree(line).get("hex").asText()));
            int size = frame.readInt();
            if (size != frame.readableBytes()) {
                throw new IllegalStateException("frame of " + size);
            }
            BaseCommand command = new BaseCommand();
            command.parseFrom(frame, frame.readInt());
            Object shown = value(command);
            BrokerEntryMetadata broker = Commands.parseBrokerEntryMetadataIfExist(frame);
            Object sum = null;
            if (Commands.hasChecksum(frame)) {
                int announced = Commands.readChecksum(frame);
                sum = announced == crc(bytesOf(frame));
            }
            MessageMetadata metadata = Commands.parseMessageMetadata(frame);
            Object head = value(metadata);
            ByteBuf plain = frame;
            if (metadata.getEncryptionKeysCount() == 0) {
                CompressionCodec codec = CompressionCodecProvider.getCompressionCodec(metadata.getCompression());
                plain = codec.decode(frame, metadata.getUncompressedSize());
            }
            List<Object> messages = new ArrayList<>();
            if (metadata.hasNumMessagesInBatch() && metadata.getEncryptionKeysCount() == 0) {
                for (int i = 0; i < metadata.getNumMessagesInBatch(); i++) {
                    SingleMessageMetadata single = new SingleMessageMetadata();
                    ByteBuf payload = Commands.deSerializeSingleMessageInBatch(plain, single, i, metadata.getNumMessagesInBatch());
                    messages.add(Map.of("metadata", value(single), "payload", value(bytesOf(payload))));
                }
            }
            print("command", shown, "broker", broker == null ? null : value(broker), "checksum", sum, "metadata", head, "messages", messages,
                "plain", messages.isEmpty() ? hex(bytesOf(plain)) : "");
        }
    }

    static int crc(byte[] bytes) {
        return Crc32cIntChecksum.computeChecksum(Unpooled.wrappedBuffer(bytes));
    }

    static byte[] bytesOf(ByteBuf buffer) {
        byte[] bytes = new byte[buffer.readableBytes()];
        buffer.getBytes(buffer.readerIndex(), bytes);
        return bytes;
    }

    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
