import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * Curator's recipes against any server: two clients beside each other, each recipe in a folder of its own.
 *   CONNECT FOLDER      a line for each recipe: its name, and what went wrong, or null
 */
public class CuratorRecipes {
    interface Recipe {
        void run(String path) throws Exception;
    }

    interface Holds {
        boolean now() throws Exception;
    }

    static final long SECONDS = 30;
    static CuratorFramework one;
    static CuratorFramework two;
    static ExecutorService threads = Executors.newCachedThreadPool();

    public static void main(String[] arguments) throws Exception {
        one = client(arguments[0]);
        two = client(arguments[0]);
        one.createContainers(arguments[1]);
        Map<String, Recipe> recipes = new LinkedHashMap<>();
        recipes.put("InterProcessMutex", CuratorRecipes::mutex);
        recipes.put("InterProcessSemaphoreMutex", CuratorRecipes::semaphoreMutex);
        recipes.put("InterProcessReadWriteLock", CuratorRecipes::readWriteLock);
        recipes.put("InterProcessSemaphoreV2", CuratorRecipes::semaphore);
        recipes.put("InterProcessMultiLock", CuratorRecipes::multiLock);
        recipes.put("LeaderLatch", CuratorRecipes::leaderLatch);
        recipes.put("LeaderSelector", CuratorRecipes::leaderSelector);
        recipes.put("DistributedBarrier", CuratorRecipes::barrier);
        recipes.put("DistributedDoubleBarrier", CuratorRecipes::doubleBarrier);
        recipes.put("SharedCount", CuratorRecipes::sharedCount);
        recipes.put("DistributedAtomicLong", CuratorRecipes::atomicLong);
        recipes.put("PersistentNode", CuratorRecipes::persistentNode);
        recipes.put("GroupMember", CuratorRecipes::groupMember);
        recipes.put("NodeCache", CuratorRecipes::nodeCache);
        recipes.put("PathChildrenCache", CuratorRecipes::pathChildrenCache);
        recipes.put("TreeCache", CuratorRecipes::treeCache);
        recipes.put("CuratorCache", CuratorRecipes::curatorCache);
        recipes.put("PersistentWatcher", CuratorRecipes::persistentWatcher);
        recipes.put("SimpleDistributedQueue", CuratorRecipes::simpleQueue);
        recipes.put("DistributedQueue", CuratorRecipes::queue);
        recipes.put("DistributedPriorityQueue", CuratorRecipes::priorityQueue);
        recipes.put("DistributedDelayQueue", CuratorRecipes::delayQueue);
        recipes.put("transaction", CuratorRecipes::transaction);
        recipes.put("protected ephemeral", CuratorRecipes::protection);
        recipes.put("lost session", CuratorRecipes::lostSession);
        for (Map.Entry<String, Recipe> entry : recipes.entrySet()) {
            String why = "null";
            Future<?> run = threads.submit(() -> {
                entry.getValue().run(arguments[1] + "/" + entry.getKey().replace(' ', '-'));
                return null;
            });
            try {
                run.get(2 * SECONDS, TimeUnit.SECONDS);
            } catch (Exception problem) {
                Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                String place = cause.getStackTrace().length == 0 ? "" : " " + Arrays.asList(cause.getStackTrace());
                why = "\"" + (cause + place).replaceAll("[^ -~]", " ").replace("\\", "/").replace("\"", "'") + "\"";
            }
            System.out.println("{\"recipe\": \"" + entry.getKey() + "\", \"why\": " + why + "}");
        }
        one.close();
        two.close();
        System.exit(0);
    }

    static CuratorFramework client(String servers) throws Exception {
        CuratorFramework made = CuratorFrameworkFactory.newClient(servers, 10000, 10000, new RetryOneTime(100));
        made.start();
        check(made.blockUntilConnected((int) SECONDS, TimeUnit.SECONDS), "no connection");
        return made;
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    static void until(Holds holds, String what) throws Exception {
        until(holds, () -> what);
    }

    static void until(Holds holds, Supplier<String> what) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!holds.now()) {
            check(System.nanoTime() < end, "not so in time: " + what.get());
            Thread.sleep(10);
        }
    }

    /** The other client's server may be behind: what is not there yet is not there for whoever looks without waiting. */
    static void heard(String path) throws Exception {
        until(() -> two.checkExists().forPath(path) != null, "the other server has heard of " + path);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Work of both clients, four threads each; none may be beside another one. */
    static void exclusive(Callable<AutoCloseable> first, Callable<AutoCloseable> second) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger times = new AtomicInteger();
        List<Future<Void>> works = new ArrayList<>();
        for (int number = 0; number < 8; number++) {
            Callable<AutoCloseable> take = number % 2 == 0 ? first : second;
            works.add(threads.submit(() -> {
                for (int round = 0; round < 5; round++) {
                    try (AutoCloseable held = take.call()) {
                        check(inside.incrementAndGet() == 1, "two are inside");
                        times.incrementAndGet();
                        Thread.sleep(2);
                        inside.decrementAndGet();
                    }
                }
                return null;
            }));
        }
        for (Future<Void> work : works) {
            work.get(SECONDS, TimeUnit.SECONDS);
        }
        check(times.get() == 40, "held " + times + " times");
    }

    static void mutex(String path) throws Exception {
        InterProcessMutex first = new InterProcessMutex(one, path);
        InterProcessMutex second = new InterProcessMutex(two, path);
        exclusive(() -> held(first), () -> held(second));
        first.acquire();
        first.acquire();
        check(!second.acquire(200, TimeUnit.MILLISECONDS), "taken from its owner");
        until(() -> first.getParticipantNodes().size() == 1, "who does not wait any more is in the line");
        first.release();
        first.release();
        check(second.acquire(SECONDS, TimeUnit.SECONDS), "not free again");
        second.release();
    }

    static AutoCloseable held(InterProcessMutex lock) throws Exception {
        lock.acquire();
        return lock::release;
    }

    static void semaphoreMutex(String path) throws Exception {
        exclusive(() -> held(one, path), () -> held(two, path));
    }

    static AutoCloseable held(CuratorFramework client, String path) throws Exception {
        InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(client, path);
        lock.acquire();
        return lock::release;
    }

    static void readWriteLock(String path) throws Exception {
        InterProcessReadWriteLock first = new InterProcessReadWriteLock(one, path);
        InterProcessReadWriteLock second = new InterProcessReadWriteLock(two, path);
        exclusive(() -> held(first.writeLock()), () -> held(second.writeLock()));
        first.readLock().acquire();
        check(second.readLock().acquire(SECONDS, TimeUnit.SECONDS), "readers are not together");
        check(!second.writeLock().acquire(200, TimeUnit.MILLISECONDS), "a writer beside readers");
        first.readLock().release();
        second.readLock().release();
        check(second.writeLock().acquire(SECONDS, TimeUnit.SECONDS), "not free again");
        check(second.readLock().acquire(SECONDS, TimeUnit.SECONDS), "a writer may read");
        check(!first.readLock().acquire(200, TimeUnit.MILLISECONDS), "a reader beside a writer");
        second.readLock().release();
        second.writeLock().release();
    }

    static void semaphore(String path) throws Exception {
        InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(one, path, 3);
        InterProcessSemaphoreV2 second = new InterProcessSemaphoreV2(two, path, 3);
        Collection<Lease> held = first.acquire(2);
        Lease third = second.acquire();
        check(second.acquire(200, TimeUnit.MILLISECONDS) == null, "a fourth lease of three");
        first.returnAll(held);
        Lease fourth = second.acquire(SECONDS, TimeUnit.SECONDS);
        check(fourth != null, "not free again");
        second.returnLease(third);
        second.returnLease(fourth);
    }

    static void multiLock(String path) throws Exception {
        InterProcessMultiLock both = new InterProcessMultiLock(one, List.of(path + "/a", path + "/b"));
        InterProcessMutex half = new InterProcessMutex(two, path + "/b");
        half.acquire();
        check(!both.acquire(200, TimeUnit.MILLISECONDS), "one of both is another one's");
        half.release();
        check(both.acquire(SECONDS, TimeUnit.SECONDS), "not free again");
        check(!half.acquire(200, TimeUnit.MILLISECONDS), "both are held");
        both.release();
    }

    static void leaderLatch(String path) throws Exception {
        LeaderLatch first = new LeaderLatch(one, path, "first");
        LeaderLatch second = new LeaderLatch(two, path, "second");
        first.start();
        check(first.await(SECONDS, TimeUnit.SECONDS), "nobody leads");
        second.start();
        until(() -> second.getParticipants().size() == 2, "both take part");
        check(!second.hasLeadership() && second.getLeader().getId().equals("first"), "two lead");
        first.close();
        check(second.await(SECONDS, TimeUnit.SECONDS), "nobody follows");
        second.close();
    }

    static void leaderSelector(String path) throws Exception {
        BlockingQueue<String> led = new LinkedBlockingQueue<>();
        AtomicInteger inside = new AtomicInteger();
        List<LeaderSelector> selectors = new ArrayList<>();
        for (CuratorFramework client : List.of(one, two, one)) {
            String name = "n" + selectors.size();
            LeaderSelector made = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework framework) throws Exception {
                    led.add(inside.incrementAndGet() == 1 ? name : "two at once");
                    Thread.sleep(5);
                    inside.decrementAndGet();
                }
            });
            made.setId(name);
            made.autoRequeue();
            made.start();
            selectors.add(made);
        }
        Set<String> seen = new TreeSet<>();
        until(() -> {
            led.drainTo(seen);
            return seen.size() >= 3;
        }, "each leads in turn");
        for (LeaderSelector selector : selectors) {
            selector.close();
        }
        check(seen.equals(Set.of("n0", "n1", "n2")), "led: " + seen);
    }

    static void barrier(String path) throws Exception {
        DistributedBarrier mine = new DistributedBarrier(one, path);
        mine.setBarrier();
        DistributedBarrier theirs = new DistributedBarrier(two, path);
        heard(path);
        check(!theirs.waitOnBarrier(200, TimeUnit.MILLISECONDS), "not held up");
        Future<Boolean> waits = threads.submit(() -> theirs.waitOnBarrier(SECONDS, TimeUnit.SECONDS));
        mine.removeBarrier();
        check(waits.get(SECONDS, TimeUnit.SECONDS), "held up for ever");
    }

    static void doubleBarrier(String path) throws Exception {
        // of its own accord it makes a container, which a server removes as the last of them leaves: whoever looks then is told NoNode
        one.create().creatingParentsIfNeeded().forPath(path);
        AtomicInteger inside = new AtomicInteger();
        List<Future<Void>> works = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            CuratorFramework client = number % 2 == 0 ? one : two;
            works.add(threads.submit(() -> {
                DistributedDoubleBarrier made = new DistributedDoubleBarrier(client, path, 5);
                inside.incrementAndGet();
                check(made.enter(SECONDS, TimeUnit.SECONDS), "not let in");
                check(inside.get() == 5, "let in before all were there");
                check(made.leave(SECONDS, TimeUnit.SECONDS), "not let out");
                return null;
            }));
        }
        for (Future<Void> work : works) {
            work.get(SECONDS, TimeUnit.SECONDS);
        }
    }

    static void sharedCount(String path) throws Exception {
        try (SharedCount mine = new SharedCount(one, path, 7); SharedCount theirs = new SharedCount(two, path, 7)) {
            mine.start();
            theirs.start();
            mine.setCount(11);
            until(() -> theirs.getCount() == 11, "the other one's count");
            check(theirs.trySetCount(theirs.getVersionedValue(), 12), "the newest version");
            until(() -> mine.getCount() == 12, "the count set by version");
        }
    }

    static void atomicLong(String path) throws Exception {
        List<Future<Void>> works = new ArrayList<>();
        for (CuratorFramework client : List.of(one, two, one, two)) {
            DistributedAtomicLong made = new DistributedAtomicLong(client, path, new RetryOneTime(1));
            works.add(threads.submit(() -> {
                for (int added = 0; added < 25; ) {
                    added += made.increment().succeeded() ? 1 : 0;
                }
                return null;
            }));
        }
        for (Future<Void> work : works) {
            work.get(SECONDS, TimeUnit.SECONDS);
        }
        until(() -> new DistributedAtomicLong(one, path, new RetryOneTime(1)).get().postValue() == 100, "lost an increment");
    }

    static void persistentNode(String path) throws Exception {
        try (PersistentNode node = new PersistentNode(one, CreateMode.EPHEMERAL, false, path, bytes("here"))) {
            node.start();
            check(node.waitForInitialCreate(SECONDS, TimeUnit.SECONDS), "not made");
            two.delete().forPath(path);
            until(() -> two.checkExists().forPath(path) != null, "made again");
            node.setData(bytes("moved"));
            until(() -> Arrays.equals(two.getData().forPath(path), bytes("moved")), "its data");
        }
        until(() -> two.checkExists().forPath(path) == null, "gone at close");
    }

    static void groupMember(String path) throws Exception {
        try (GroupMember first = new GroupMember(one, path, "a"); GroupMember second = new GroupMember(two, path, "b")) {
            first.start();
            second.start();
            until(() -> first.getCurrentMembers().keySet().equals(Set.of("a", "b")), "both are members");
        }
    }

    static void nodeCache(String path) throws Exception {
        try (NodeCache cache = new NodeCache(one, path)) {
            cache.start(true);
            for (String text : List.of("first", "second")) {
                two.create().orSetData().forPath(path, bytes(text));
                until(() -> cache.getCurrentData() != null && Arrays.equals(cache.getCurrentData().getData(), bytes(text)), text);
            }
            two.delete().forPath(path);
            until(() -> cache.getCurrentData() == null, "gone");
        }
    }

    static void pathChildrenCache(String path) throws Exception {
        two.create().forPath(path);
        try (PathChildrenCache cache = new PathChildrenCache(one, path, true)) {
            cache.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
            for (int number = 0; number < 50; number++) {
                two.create().forPath(path + "/" + number, bytes("" + number));
            }
            until(() -> cache.getCurrentData().size() == 50, "all children");
            two.setData().forPath(path + "/7", bytes("seven"));
            two.delete().forPath(path + "/8");
            until(() -> cache.getCurrentData(path + "/8") == null, "one is gone");
            until(() -> Arrays.equals(cache.getCurrentData(path + "/7").getData(), bytes("seven")), "one has changed");
        }
    }

    static void treeCache(String path) throws Exception {
        try (TreeCache cache = new TreeCache(one, path)) {
            cache.start();
            two.create().creatingParentsIfNeeded().forPath(path + "/a/b/c", bytes("deep"));
            until(() -> cache.getCurrentData(path + "/a/b/c") != null, "a deep node");
            two.delete().deletingChildrenIfNeeded().forPath(path + "/a");
            until(() -> cache.getCurrentData(path + "/a") == null, "a branch is gone");
        }
    }

    static void curatorCache(String path) throws Exception {
        Map<String, String> told = new ConcurrentSkipListMap<>();
        try (CuratorCache cache = CuratorCache.build(one, path)) {
            cache.listenable().addListener((type, before, after) -> {
                ChildData of = after == null ? before : after;
                told.put(of.getPath(), after == null ? "gone" : new String(after.getData(), StandardCharsets.UTF_8));
            });
            cache.start();
            two.create().forPath(path, bytes("root"));
            for (int number = 0; number < 30; number++) {
                two.create().creatingParentsIfNeeded().forPath(path + "/x" + number % 3 + "/" + number, bytes("made"));
            }
            until(() -> told.size() == 34, () -> "all nodes; told " + told);
            two.setData().forPath(path + "/x1/4", bytes("set"));
            two.delete().forPath(path + "/x1/7");
            Map<String, String> due = new ConcurrentSkipListMap<>(Map.of(path, "root"));
            for (int number = 0; number < 30; number++) {
                due.put(path + "/x" + number % 3 + "/" + number, number == 4 ? "set" : number == 7 ? "gone" : "made");
            }
            until(() -> told.entrySet().containsAll(due.entrySet()), () -> "all of it; told " + told);
            check(cache.size() == 33, "nodes: " + cache.size());
        }
    }

    static void persistentWatcher(String path) throws Exception {
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        try (PersistentWatcher watcher = new PersistentWatcher(one, path, true)) {
            CountDownLatch set = new CountDownLatch(1);
            watcher.getResetListenable().addListener(set::countDown);
            watcher.getListenable().addListener(event -> told.add(event.getType() + " " + event.getPath().substring(path.length())));
            watcher.start();
            check(set.await(SECONDS, TimeUnit.SECONDS), "not set");
            two.create().forPath(path);
            two.create().forPath(path + "/a");
            two.setData().forPath(path + "/a", bytes("x"));
            two.delete().forPath(path + "/a");
            for (String event : List.of("NodeCreated ", "NodeCreated /a", "NodeDataChanged /a", "NodeDeleted /a")) {
                String next = told.poll(SECONDS, TimeUnit.SECONDS);
                check(event.equals(next), event + " was due, " + next + " came");
            }
        }
    }

    static void simpleQueue(String path) throws Exception {
        SimpleDistributedQueue mine = new SimpleDistributedQueue(one, path);
        SimpleDistributedQueue theirs = new SimpleDistributedQueue(two, path);
        for (int number = 0; number < 20; number++) {
            mine.offer(bytes("" + number));
        }
        for (int number = 0; number < 20; number++) {
            check(Arrays.equals(theirs.poll(SECONDS, TimeUnit.SECONDS), bytes("" + number)), "out of turn at " + number);
        }
        check(theirs.poll() == null, "one too many");
    }

    static final QueueSerializer<String> TEXT = new QueueSerializer<>() {
        @Override
        public byte[] serialize(String item) {
            return bytes(item);
        }

        @Override
        public String deserialize(byte[] data) {
            return new String(data, StandardCharsets.UTF_8);
        }
    };

    static QueueConsumer<String> into(Collection<String> taken) {
        return new QueueConsumer<>() {
            @Override
            public void consumeMessage(String message) {
                taken.add(message);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {
            }
        };
    }

    static void queue(String path) throws Exception {
        List<String> taken = new ArrayList<>();
        BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        try (DistributedQueue<String> in = QueueBuilder.builder(one, null, TEXT, path).buildQueue();
             DistributedQueue<String> first = QueueBuilder.builder(one, into(arrived), TEXT, path).lockPath(path + "-locks").buildQueue();
             DistributedQueue<String> second = QueueBuilder.builder(two, into(arrived), TEXT, path).lockPath(path + "-locks").buildQueue()) {
            in.start();
            first.start();
            second.start();
            for (int number = 0; number < 40; number++) {
                in.put("" + number);
            }
            for (int number = 0; number < 40; number++) {
                taken.add(arrived.poll(SECONDS, TimeUnit.SECONDS));
            }
            check(new TreeSet<>(taken).size() == 40 && arrived.isEmpty(), "taken: " + taken);
        }
    }

    static void priorityQueue(String path) throws Exception {
        BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        try (DistributedPriorityQueue<String> in = QueueBuilder.builder(one, null, TEXT, path).buildPriorityQueue(1)) {
            in.start();
            for (int number : List.of(5, 1, 4, 2, 3)) {
                in.put("" + number, number);
            }
            check(in.flushPuts(SECONDS, TimeUnit.SECONDS), "not written");
            until(() -> two.checkExists().forPath(path) != null && two.getChildren().forPath(path).size() == 5, "the other server has all of them");
            QueueBuilder<String> builder = QueueBuilder.builder(two, into(arrived), TEXT, path).executor(Runnable::run);
            try (DistributedPriorityQueue<String> out = builder.buildPriorityQueue(1)) {
                out.start();
                for (int number = 1; number <= 5; number++) {
                    String next = arrived.poll(SECONDS, TimeUnit.SECONDS);
                    check(("" + number).equals(next), number + " was due, " + next + " came");
                }
            }
        }
    }

    static void delayQueue(String path) throws Exception {
        BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        try (DistributedDelayQueue<String> in = QueueBuilder.builder(one, null, TEXT, path).buildDelayQueue();
             DistributedDelayQueue<String> out = QueueBuilder.builder(two, into(arrived), TEXT, path).buildDelayQueue()) {
            in.start();
            out.start();
            long now = System.currentTimeMillis();
            in.put("late", now + 1000);
            in.put("soon", now + 300);
            check("soon".equals(arrived.poll(SECONDS, TimeUnit.SECONDS)), "the one that is due first");
            check("late".equals(arrived.poll(SECONDS, TimeUnit.SECONDS)), "the one that is due last");
            check(System.currentTimeMillis() >= now + 1000, "before its time");
        }
    }

    static void transaction(String path) throws Exception {
        one.create().forPath(path, bytes("0"));
        List<CuratorTransactionResult> done = one.transaction().forOperations(
            one.transactionOp().check().withVersion(0).forPath(path),
            one.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(path + "/n-", bytes("1")),
            one.transactionOp().setData().withVersion(0).forPath(path, bytes("2")));
        check(done.get(1).getResultPath().equals(path + "/n-0000000000") && done.get(2).getResultStat().getVersion() == 1, "results: " + done);
        try {
            one.transaction().forOperations(
                one.transactionOp().delete().forPath(path + "/n-0000000000"),
                one.transactionOp().check().withVersion(0).forPath(path));
            check(false, "a check that fails");
        } catch (org.apache.zookeeper.KeeperException.BadVersionException why) {
            check(why.getResults().size() == 2, "results of a failure");
        }
        heard(path + "/n-0000000000");
        check(two.getChildren().forPath(path).size() == 1, "half of a transaction");
    }

    static void protection(String path) throws Exception {
        String made = one.create().creatingParentContainersIfNeeded().withProtection()
            .withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(path + "/lock-", bytes("x"));
        check(made.startsWith(path + "/_c_") && made.endsWith("lock-0000000000"), made);
        heard(made);
        check(two.checkExists().forPath(made).getEphemeralOwner() == one.getZookeeperClient().getZooKeeper().getSessionId(), "its owner");
        one.delete().guaranteed().forPath(made);
    }

    /** A session that is closed under its client, as when it expires: who leads is another one then, and what was standing comes back. */
    static void lostSession(String path) throws Exception {
        CuratorFramework third = client(one.getZookeeperClient().getCurrentConnectionString());
        Set<String> states = new ConcurrentSkipListSet<>();
        third.getConnectionStateListenable().addListener((client, state) -> states.add(state.name()));
        LeaderLatch first = new LeaderLatch(third, path + "/latch", "first");
        LeaderLatch second = new LeaderLatch(two, path + "/latch", "second");
        PersistentNode node = new PersistentNode(third, CreateMode.EPHEMERAL, false, path + "/node", bytes("x"));
        first.start();
        check(first.await(SECONDS, TimeUnit.SECONDS), "nobody leads");
        second.start();
        node.start();
        check(node.waitForInitialCreate(SECONDS, TimeUnit.SECONDS), "not made");
        ZooKeeper mine = third.getZookeeperClient().getZooKeeper();
        long old = mine.getSessionId();
        Watcher nobody = event -> {
        };
        ZooKeeper same = new ZooKeeper(third.getZookeeperClient().getCurrentConnectionString(), 10000, nobody, old, mine.getSessionPasswd());
        until(() -> same.getState() == ZooKeeper.States.CONNECTED, "the session is taken over");
        same.close();
        check(second.await(SECONDS, TimeUnit.SECONDS), "nobody follows");
        until(() -> states.contains("LOST") && states.contains("RECONNECTED"), "states: " + states);
        until(() -> {
            Stat again = two.checkExists().forPath(path + "/node");
            return again != null && again.getEphemeralOwner() != old;
        }, "made again");
        check(!first.hasLeadership(), "two lead");
        second.close();
        check(first.await(SECONDS, TimeUnit.SECONDS), "nobody follows again");
        node.close();
        first.close();
        third.close();
    }
}
