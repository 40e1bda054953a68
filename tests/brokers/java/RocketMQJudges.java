// What RocketJudge does (see there), one mode after another in one JVM: to start one costs a second of a core.
//   stdin: the arguments of RocketJudge as a JSON list of strings, one such list a line
//   stdout: what that mode prints, and then {"done": true} or {"failed": text}
// Its argument is the folder with RocketJudge.class, so that this file compiles alone. Modes that stay or read stdin are not for here.
import com.alibaba.fastjson.*;
import java.io.*;
import java.lang.reflect.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

public class RocketMQJudges {
    public static void main(String[] a) throws Exception {
        ClassLoader judge = new URLClassLoader(new URL[] {new File(a[0]).toURI().toURL()});
        Method run = judge.loadClass("RocketJudge").getDeclaredMethod("run", String[].class);
        run.setAccessible(true);
        Scanner in = new Scanner(System.in, StandardCharsets.UTF_8);
        while (in.hasNextLine()) {
            String[] words = JSON.parseArray(in.nextLine(), String.class).toArray(new String[0]);
            JSONObject end = new JSONObject();
            try {
                run.invoke(null, (Object) words);
                end.put("done", true);
            } catch (InvocationTargetException e) {
                StringWriter text = new StringWriter();
                e.getCause().printStackTrace(new PrintWriter(text));
                end.put("failed", text.toString());
            }
            System.out.println(end.toJSONString());
        }
        System.exit(0);  // the client's threads would keep the process
    }
}
