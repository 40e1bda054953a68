import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorage;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** A remote storage in a folder, of which each third read takes a second and a half: longer than a broker lets a Fetch wait for it. */
public class SlowStore implements RemoteStorageManager {
    private final LocalTieredStorage folder = new LocalTieredStorage();
    private final AtomicInteger reads = new AtomicInteger();

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int first, int last) throws RemoteStorageException {
        if (reads.incrementAndGet() % 3 == 0) {
            try {
                Thread.sleep(1500);
            } catch (InterruptedException why) {
                Thread.currentThread().interrupt();
                throw new RemoteStorageException(why);
            }
        }
        return folder.fetchLogSegment(segment, first, last);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int first) throws RemoteStorageException {
        return fetchLogSegment(segment, first, segment.segmentSizeInBytes());
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        return folder.fetchIndex(segment, type);
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
        return folder.copyLogSegmentData(segment, data);
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        folder.deleteLogSegmentData(segment);
    }

    @Override
    public void configure(Map<String, ?> settings) {
        folder.configure(settings);
    }

    @Override
    public void close() {
        folder.close();
    }
}
