import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;

/** Reads a record section in hex from each line of the standard input, as Java's client does, and prints its records, a JSON line each. */
public final class KafkaRecords {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = lines.readLine()) != null; ) {
            StringBuilder out = new StringBuilder("{\"records\":[");
            byte[] section = HexFormat.of().parseHex(line.replace("\"", ""));
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(section)).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    record.ensureValid();
                    out.append(out.charAt(out.length() - 1) == '[' ? "" : ",").append('[').append(record.offset()).append(',');
                    out.append(record.timestamp()).append(',').append(hex(record.key())).append(',').append(hex(record.value())).append(",[");
                    String between = "";
                    for (Header header : record.headers()) {
                        byte[] value = header.value();
                        out.append(between).append('[').append(hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))));
                        out.append(',').append(hex(value == null ? null : ByteBuffer.wrap(value))).append(']');
                        between = ",";
                    }
                    out.append("]]");
                }
            }
            System.out.println(out.append("]}"));
        }
    }

    private static String hex(ByteBuffer data) {
        if (data == null) {
            return "null";
        }
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        return '"' + HexFormat.of().formatHex(bytes) + '"';
    }
}
