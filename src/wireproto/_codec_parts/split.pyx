# Rows by partition, or by topic: one Columns into several, each in the order of the rows.
#
# May assume: the numbers are the caller's choice for each row. Must not: know why.

from libc.stdlib cimport calloc, free


def topic_shares(source):
    """Rows to be sent, from anything that `Columns.from_arrow` takes, by the topic that the column `topic` of text names.

    Returns:
        a list of (topic, Columns), in the order of their first rows; the rows keep their partitions.
    Raises:
        ValueUnsupported: there is no such column, or a null in it.
    """
    cdef list topics = []
    columns = import_arrow(source, topics)
    if len(topics) != len(columns):
        raise ValueUnsupported("there is no column 'topic': say which topic all rows go to, or one in each row")
    known = {}
    numbers = [known.setdefault(name, len(known)) for name in topics]
    names = list(known)
    return [(names[number], rows) for number, rows in split_columns(columns, numbers, len(names), True)]


def split_columns(Columns columns not None, list numbers not None, int partitions, bint placed=False):
    """The rows that go to each partition.

    Args:
        numbers: a partition for each row, from 0.
        partitions: how many there are. placed: keep the rows' own partitions.
    Returns:
        a list of (partition, Columns) for those that have rows, lowest first. Copies, unless all rows go to one.
    Raises:
        IndexError: a number that is no partition, or not one for each row.
    """
    cdef Py_ssize_t row, rows = columns.stop - columns.start
    cdef int number, first = -1
    cdef bint mixed = False
    cdef Table **into
    cdef Table *t = columns.table
    cdef list found = []
    if len(numbers) != rows:
        raise IndexError(f"{len(numbers)} numbers for {rows} rows")
    for row in range(rows):
        number = numbers[row]
        if not 0 <= number < partitions:
            raise IndexError(f"row {row}: there is no partition {number} of {partitions}")
        mixed = mixed or (row > 0 and number != first)
        first = number
    if not rows:
        return found
    if not mixed:
        return [(first, columns)]
    into = <Table **>calloc(partitions, sizeof(Table *))
    if into == NULL:
        raise MemoryError
    try:
        for row in range(rows):
            number = numbers[row]
            if into[number] == NULL:
                into[number] = table_new(t.kind, t.wanted)
                if into[number] == NULL:
                    raise MemoryError
                check(table_reserve(into[number], rows // partitions + 16))
                if placed and t.partition != NULL:
                    check(grow(<void **>&into[number].partition, into[number].row_room * 4))
            elif into[number].rows >= into[number].row_room:
                check(table_reserve(into[number], into[number].rows))
            check(copy_rows(into[number], t, columns.start + row, columns.start + row + 1))
        for number in range(partitions):
            if into[number] != NULL:
                table = into[number]
                into[number] = NULL
                found.append((number, columns_take(table)))
    finally:
        for number in range(partitions):
            table_release(into[number])
        free(into)
    return found
