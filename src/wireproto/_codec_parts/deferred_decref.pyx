# Keeping Python objects from C: what a table's views point into is often a bytes object of the interpreter.
#
# A table may end on any thread, with or without the interpreter. Then its object waits in a list that has no lock and is dropped by the
# main thread's next pending call, or by the next decoder that runs. After the interpreter has ended, nothing is dropped.

from cpython.ref cimport PyObject

cdef extern from * nogil:
    """
    #ifndef WIREPROTO_DEFERRED_DECREF_H
    #define WIREPROTO_DEFERRED_DECREF_H
    typedef struct wp_due { struct wp_due *next; PyObject *object; } wp_due;
    static wp_due *wp_due_first;
    static int wp_due_asked;

    static int wp_attached(void) {
    #if PY_VERSION_HEX >= 0x030D0000
        return PyThreadState_GetUnchecked() != NULL;
    #else
        PyThreadState *mine = PyGILState_GetThisThreadState();   /* before 3.13 the other call returns the state of whichever thread holds the GIL */
        return mine != NULL && mine == _PyThreadState_UncheckedGet();
    #endif
    }
    static int wp_drop_due(void *unused) {
        wp_due *due, *next;
        (void)unused;
        __atomic_store_n(&wp_due_asked, 0, __ATOMIC_SEQ_CST);
        for (due = __atomic_exchange_n(&wp_due_first, NULL, __ATOMIC_SEQ_CST); due; due = next) {
            next = due->next;
            Py_DECREF(due->object);
            free(due);
        }
        return 0;
    }
    static void wp_drop_object(void *owner) {
        wp_due *due = (wp_due *)owner;
        if (!Py_IsInitialized()) return;
        if (wp_attached()) {
            Py_DECREF(due->object);
            free(due);
            return;
        }
        due->next = __atomic_load_n(&wp_due_first, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&wp_due_first, &due->next, due, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
        if (!__atomic_exchange_n(&wp_due_asked, 1, __ATOMIC_SEQ_CST) && Py_AddPendingCall(wp_drop_due, NULL) != 0)
            __atomic_store_n(&wp_due_asked, 0, __ATOMIC_SEQ_CST);
    }
    static inline void wp_drop_waiting(void) {
        if (__atomic_load_n(&wp_due_first, __ATOMIC_RELAXED)) wp_drop_due(NULL);
    }
    static void *wp_keep_object(PyObject *object) {
        wp_due *due = (wp_due *)malloc(sizeof(wp_due));
        if (due) { due->next = NULL; due->object = object; Py_INCREF(object); }
        return due;
    }
    #endif
    """
    void drop_object "wp_drop_object"(void *owner) noexcept


cdef extern from *:
    void drop_waiting "wp_drop_waiting"() noexcept
    void *keep_object "wp_keep_object"(PyObject *object) noexcept


cdef object steady_owner(object data):
    """What keeps the bytes of `data` alive and unchanged: exact bytes, or the bytes that a Slice lies in; None when there is no such thing."""
    if isinstance(data, Slice):
        data = (<Slice>data).owner
    return data if PyBytes_CheckExact(data) else None


cdef int keep_bytes(Table *t, object owner) except? -9:
    """Keep exact bytes or a ScratchBuffer for as long as the table lives; the number of the kept buffer, or TABLE_MEMORY."""
    cdef Py_ssize_t size
    cdef const uint8_t *data = plain_at(owner, &size)
    cdef void *due = keep_object(<PyObject *>owner)
    cdef int number
    if due == NULL:
        return TABLE_MEMORY
    number = table_keep(t, data, size, due, drop_object)
    if number < 0:
        drop_object(due)
    return number
