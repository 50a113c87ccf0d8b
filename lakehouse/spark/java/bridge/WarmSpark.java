package lakehouse.spark;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.CopyOption;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Optional;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.util.Utils;
import scala.Option;

/**
 * The JVM that the runs of a code location share (`lakehouse/spark/warm_session.py` starts it and asks
 * it): one Spark application, and for each run a session and a py4j server of its own.
 *
 * A run holds its connection as long as it lives. When that ends, its jobs are cancelled, and what
 * its session kept goes, with the folder of its broadcasts, which it has named. This JVM ends once the code location has ended, it was told to serve
 * something else, or nobody asked it for half an hour; but not while a run uses it.
 */
public final class WarmSpark {
    private static final long IDLE_MS = 1800000L;
    private static final long LOOK_MS = 500L;
    private static final int LAST_LOOKS = 4;
    private static final int PATIENCE_MS = 10000;

    private final SparkContext context;
    private final String serves;
    private final String token;
    private final Path door;
    private final ArrayList turns = new ArrayList();
    private int granted;
    private boolean isClosed;
    private long usedAt = System.currentTimeMillis();

    private WarmSpark(SparkContext context, String serves, Path door) {
        this.context = context;
        this.serves = serves;
        this.door = door;
        this.token = Utils.createSecret(context.conf());
    }

    /** `main(code location's process, what it serves, file that says where it is)`. */
    public static void main(String[] arguments) throws Exception {
        Optional owner = ProcessHandle.of(Long.parseLong(arguments[0]));
        Instant since = startOf(owner);
        WarmSpark warm = new WarmSpark(
            SparkContext.getOrCreate(), arguments[1], Paths.get(arguments[2], new String[0]));
        ServerSocket socket = new ServerSocket(0, 64, InetAddress.getByName("127.0.0.1"));
        warm.open(socket.getLocalPort());
        warm.admitting(socket);
        boolean orphaned = false;
        while (!warm.isDone()) {
            pause();
            orphaned = since == null || !since.equals(startOf(
                ProcessHandle.of(Long.parseLong(arguments[0]))));
            if (orphaned) {
                warm.close();
            }
        }
        if (orphaned) {
            warm.clear();
        }
        System.exit(0);
    }

    /** When a process began; null where it has ended, also where nobody has taken note of that. */
    private static Instant startOf(Optional process) {
        if (!process.isPresent()) {
            return null;
        }
        ProcessHandle.Info info = ((ProcessHandle) process.get()).info();
        return info.command().isPresent() ? (Instant) info.startInstant().orElse(null) : null;
    }

    private void open(int port) throws IOException {
        Path staged = door.resolveSibling(door.getFileName() + "." + ProcessHandle.current().pid());
        FileAttribute mine = PosixFilePermissions.asFileAttribute(
            PosixFilePermissions.fromString("rw-------"));
        Files.deleteIfExists(staged);
        Files.createFile(staged, new FileAttribute[] {mine});
        Files.write(staged, text(
            ProcessHandle.current().pid() + " " + port + " " + token + "\n"),
            new OpenOption[0]);
        Files.move(staged, door, new CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
    }

    private void admitting(final ServerSocket socket) {
        Thread thread = new Thread("warm-spark-door") {
            public void run() {
                while (true) {
                    try {
                        final Socket run = socket.accept();
                        Thread serving = new Thread("warm-spark-run") {
                            public void run() {
                                serve(run);
                            }
                        };
                        serving.setDaemon(true);
                        serving.start();
                    } catch (IOException error) {
                        throw new IllegalStateException(error);
                    }
                }
            }
        };
        thread.setDaemon(true);
        thread.start();
    }

    private void serve(Socket run) {
        try {
            run.setSoTimeout(PATIENCE_MS);
            BufferedReader asked = new BufferedReader(
                new InputStreamReader(run.getInputStream(), StandardCharsets.UTF_8));
            String line = asked.readLine();
            String[] words = line == null ? new String[0] : line.split(" ");
            if (words.length == 2 && MessageDigest.isEqual(text(words[0]), text(token))) {
                if (!words[1].equals(serves)) {
                    close();
                }
                String tag = admit();
                if (tag != null) {
                    try {
                        run.setSoTimeout(0);
                        served(run.getOutputStream(), asked, tag);
                    } finally {
                        leave(tag);
                    }
                }
            }
        } catch (IOException error) {
            // the run has gone
        }
        try {
            run.close();
        } catch (IOException error) {
            // as well
        }
    }

    /** All threads of the run's server come from this one: they inherit session, tag and pool. */
    private void served(OutputStream answer, BufferedReader asked, String tag) throws IOException {
        SparkSession session = new SparkSession(context, new HashMap());
        SparkSession.setActiveSession(session);
        context.addJobTag(tag);
        context.setLocalProperty("spark.scheduler.pool", turnOf(tag));
        Py4JServer server = new Py4JServer(context.conf());
        server.start();
        String files = null;
        try {
            answer.write(text(server.getListeningPort() + " " + server.secret() + " " + tag + "\n"));
            answer.flush();
            files = asked.readLine();
            while (asked.read() != -1) {
                continue;
            }
        } finally {
            server.shutdown();
            stopStreams(session);
            // a thread that nobody waits for may begin another job
            for (int i = 0; i < LAST_LOOKS; i++) {
                context.cancelJobsWithTag(tag, "the run that asked for it has ended");
                pause();
            }
            session.sharedState().cacheManager().clearCache();
            Option listener = session.sharedState().statusStore().listener();
            if (listener.isDefined()) {
                context.removeSparkListener((SparkListenerInterface) listener.get());
            }
            Answerer.forget(session);
            if (files != null) {
                Utils.deleteRecursively(new File(files));
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(LOOK_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static void stopStreams(SparkSession session) {
        Object[] streams = session.sharedState().activeStreamingQueries().values().toArray();
        for (int i = 0; i < streams.length; i++) {
            try {
                ((StreamingQuery) streams[i]).stop();
            } catch (java.util.concurrent.TimeoutException error) {
                // its jobs are cancelled next
            }
        }
    }

    /** A run's tag; null where none is admitted any more. */
    private synchronized String admit() {
        if (isClosed) {
            return null;
        }
        granted++;
        String tag = "run-" + ProcessHandle.current().pid() + "-" + granted;
        // Spark keeps pools for good: those of runs that have ended are used again
        int free = turns.indexOf(null);
        if (free < 0) {
            turns.add(tag);
        } else {
            turns.set(free, tag);
        }
        return tag;
    }

    private synchronized String turnOf(String tag) {
        return "turn-" + turns.indexOf(tag);
    }

    private synchronized boolean isUnused() {
        return Collections.frequency(turns, null) == turns.size();
    }

    private synchronized void leave(String tag) {
        turns.set(turns.indexOf(tag), null);
        usedAt = System.currentTimeMillis();
        if (isUnused() && used() > 0.5) {
            System.gc();
            if (used() > 0.5) {
                close();
            }
        }
    }

    private static double used() {
        Runtime runtime = Runtime.getRuntime();
        return (double) (runtime.totalMemory() - runtime.freeMemory()) / runtime.maxMemory();
    }

    /** Admit nobody more, and end with the last run. */
    private synchronized void close() {
        if (!isClosed) {
            isClosed = true;
            try {
                String[] words = new String(Files.readAllBytes(door), StandardCharsets.US_ASCII)
                    .split(" ");
                if (words[words.length - 1].trim().equals(token)) {
                    Files.deleteIfExists(door);
                }
            } catch (IOException error) {
                // gone already
            }
        }
    }

    /** Remove the folder of a code location that has ended. */
    private void clear() throws IOException {
        DirectoryStream files = Files.newDirectoryStream(door.getParent());
        try {
            for (Object file : files) {
                Files.deleteIfExists((Path) file);
            }
        } finally {
            files.close();
        }
        Files.deleteIfExists(door.getParent());
    }

    private synchronized boolean isDone() {
        if (isUnused() && System.currentTimeMillis() - usedAt > IDLE_MS) {
            close();
        }
        return isClosed && isUnused();
    }

    private static byte[] text(String value) {
        return value.getBytes(StandardCharsets.US_ASCII);
    }
}
