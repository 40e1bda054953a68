/* A ZooKeeper client that does nothing but send and receive: the floor beside which pipelined calls are measured.
 *
 *   raw_zookeeper HOST PORT OP PATH CALLS AHEAD        OP: get, exists, set (100 bytes), create (100 bytes, sequential, below PATH)
 *
 * One session; AHEAD requests go out in one write, their replies are read and counted (length, xid and error code checked), and so on.
 * With AHEAD 1 that is one send and one recv per request, and nothing else: what a single call costs in the kernel.
 * Prints {"cpu_us": per call, "wall_us": per call}.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int sock;
static unsigned char in[1 << 20];
static size_t in_start, in_end;

static void fail(const char *why) {
    fprintf(stderr, "raw_zookeeper: %s\n", why);
    exit(1);
}

static void put32(unsigned char **to, int32_t value) {
    uint32_t v = htonl((uint32_t)value);
    memcpy(*to, &v, 4);
    *to += 4;
}

static void put_bytes(unsigned char **to, const void *data, int size) {
    put32(to, size);
    memcpy(*to, data, size);
    *to += size;
}

static int32_t get32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return (int32_t)ntohl(v);
}

static void send_all(const unsigned char *p, size_t size) {
    while (size) {
        ssize_t n = send(sock, p, size, 0);
        if (n <= 0) fail("send");
        p += n;
        size -= (size_t)n;
    }
}

/* The next frame, in `in`; its size. */
static const unsigned char *frame(int32_t *size) {
    for (;;) {
        if (in_end - in_start >= 4) {
            *size = get32(in + in_start);
            if (*size < 16 || *size > (int32_t)sizeof in - 4) fail("a frame of odd size");
            if (in_end - in_start >= 4 + (size_t)*size) {
                const unsigned char *p = in + in_start + 4;
                in_start += 4 + (size_t)*size;
                return p;
            }
        }
        memmove(in, in + in_start, in_end - in_start);
        in_end -= in_start;
        in_start = 0;
        ssize_t n = recv(sock, in + in_end, sizeof in - in_end, 0);
        if (n <= 0) fail("recv");
        in_end += (size_t)n;
    }
}

static unsigned char *request(unsigned char *to, int xid, const char *op, const char *path) {
    static const unsigned char data[100];
    unsigned char *begin = to;
    to += 4;
    put32(&to, xid);
    if (!strcmp(op, "get") || !strcmp(op, "exists")) {
        put32(&to, op[0] == 'g' ? 4 : 3);
        put_bytes(&to, path, (int)strlen(path));
        *to++ = 0;
    } else if (!strcmp(op, "set")) {
        put32(&to, 5);
        put_bytes(&to, path, (int)strlen(path));
        put_bytes(&to, data, sizeof data);
        put32(&to, -1);
    } else {
        char name[512];
        put32(&to, 1);
        put_bytes(&to, name, snprintf(name, sizeof name, "%s/n-", path));
        put_bytes(&to, data, sizeof data);
        put32(&to, 1);
        put32(&to, 31);
        put_bytes(&to, "world", 5);
        put_bytes(&to, "anyone", 6);
        put32(&to, 2);
    }
    unsigned char *size_at = begin;
    put32(&size_at, (int32_t)(to - begin - 4));
    return to;
}

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    if (argc != 7) fail("HOST PORT OP PATH CALLS AHEAD");
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(argv[1], argv[2], &hints, &found)) fail("no such host");
    sock = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(sock, found->ai_addr, found->ai_addrlen)) fail("connect");
    int on = 1, calls = atoi(argv[5]), ahead = atoi(argv[6]);
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    unsigned char *out = malloc((size_t)ahead * 1024), *to = out;
    put32(&to, 45); /* ConnectRequest: version, last zxid, time-out, session, password, read only */
    put32(&to, 0), put32(&to, 0), put32(&to, 0), put32(&to, 30000), put32(&to, 0), put32(&to, 0);
    put_bytes(&to, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    *to++ = 0;
    send_all(out, (size_t)(to - out));
    int32_t size;
    frame(&size);
    double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int sent = 0, answered = 0; answered < calls;) {
        to = out;
        for (int n = 0; n < ahead && sent < calls; n++) to = request(to, ++sent, argv[3], argv[4]);
        send_all(out, (size_t)(to - out));
        while (answered < sent) {
            const unsigned char *p = frame(&size);
            if (get32(p) != ++answered) fail("replies out of order");
            if (get32(p + 12)) fail("an error code");
        }
    }
    wall = now(CLOCK_MONOTONIC) - wall, cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("{\"cpu_us\": %.4f, \"wall_us\": %.4f}\n", cpu / calls, wall / calls);
    return 0;
}
