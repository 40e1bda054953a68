# What the operating system and the interpreter give: clock, poll, recv, sendmsg, raw locks.
#
# Raw locks and not threading.Lock: waiting for them is interruptible, making one takes 40 ns, and no Python code runs.

import os
import ssl
import threading
import weakref
from collections import deque

from . import errors

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.pythread cimport PyThread_type_lock
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from wireproto._codec_parts.endian cimport get_i32, get_i64, get_u32, put_u32
from wireproto._codec_parts.framer cimport FRAME_BAD, FRAME_PARTIAL, FRAME_WHOLE, frame_state
from wireproto._codec_parts.json_text cimport plain_end
from wireproto._codec_parts.varint cimport read_uvarint64

cdef extern from "Python.h" nogil:
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait)
    void PyThread_release_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int interruptible)
    unsigned long PyThread_get_thread_ident()

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1
    void PyErr_WriteUnraisable(PyObject *where)
    void PyErr_Restore(PyObject *kind, PyObject *error, PyObject *trace)
    object PyMemoryView_FromMemory(char *mem, Py_ssize_t size, int flags)
    int PyBUF_WRITE, PyBUF_READ
    Py_buffer *PyMemoryView_GET_BUFFER(PyObject *view)
    int PyBuffer_IsContiguous(const Py_buffer *view, char order)
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *p, Py_ssize_t n) except NULL

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int fd, msghdr *message, int flags)
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    int shutdown(int fd, int how)
    int setsockopt(int fd, int level, int option, const void *value, unsigned int size)
    int MSG_DONTWAIT, SHUT_RDWR, SOL_SOCKET, SO_RCVLOWAT

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)
    int POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void *buffer, size_t size)
    ssize_t read(int fd, void *buffer, size_t size)
    int close(int fd)

cdef extern from * nogil:
    """
    #include <string.h>
    #include <time.h>
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0                       /* macOS: net/dial.py sets SO_NOSIGPIPE */
    #endif
    static double wp_now(void) {                 /* the clock of time.monotonic() */
        struct timespec t;
    #ifdef __APPLE__
        clock_gettime(CLOCK_UPTIME_RAW, &t);
    #else
        clock_gettime(CLOCK_MONOTONIC, &t);
    #endif
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    }
    #ifdef __linux__
    #include <fcntl.h>
    #include <sys/time.h>
    static int wp_be_patient(int fd, long us) {
        /* A blocking descriptor: everything but a patient recv says MSG_DONTWAIT. */
        struct timeval t = {us / 1000000, us % 1000000};
        int flags = fcntl(fd, F_GETFL);
        return flags >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
    }
    #else
    #define wp_be_patient(fd, us) 0
    #endif
    """
    double now "wp_now"()
    bint be_patient "wp_be_patient"(int fd, long us)
    int MSG_NOSIGNAL

cdef enum:
    LOCK_FAILURE = 0
    LOCK_ACQUIRED = 1
    LOCK_INTR = 2

cdef double FOREVER = 1e300
cdef double LONGEST = 3600.0          # one sleep; waits go round


cdef inline int milliseconds(double seconds) noexcept nogil:
    """For poll: rounded up, so that a deadline is never missed by waking too early and spinning."""
    if seconds <= 0:
        return 0
    if seconds > LONGEST:
        seconds = LONGEST
    return <int>(seconds * 1000.0 + 0.999)


cdef inline long long microseconds(double seconds) noexcept nogil:
    if seconds <= 0:
        return 0
    if seconds > LONGEST:
        seconds = LONGEST
    return <long long>(seconds * 1e6) + 1


cdef inline object peek_view(uint8_t *p, size_t n, bint writable):
    """A memoryview over p[:n], for the C methods of OpenSSL's objects; must not outlive the memory."""
    return PyMemoryView_FromMemory(<char *>p, n, PyBUF_WRITE if writable else PyBUF_READ)


cdef void tell_unraisable(object why, object where) noexcept:
    """Report an error that no caller can get to `sys.unraisablehook`, with its traceback: an `except` clause has taken it from the interpreter."""
    cdef object kind = type(why)
    cdef object trace = why.__traceback__
    cdef PyObject *place = NULL
    if trace is not None:
        Py_INCREF(trace)
        place = <PyObject *>trace
    Py_INCREF(kind)
    Py_INCREF(why)
    PyErr_Restore(<PyObject *>kind, <PyObject *>why, place)      # takes all three
    PyErr_WriteUnraisable(<PyObject *>where)
