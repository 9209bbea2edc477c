# C types of the variables in offset_map.py when Cython compiles it; all others stay objects.

cimport cython

@cython.locals(slot=cython.Py_ssize_t, position=cython.Py_ssize_t)
cdef Py_ssize_t _find(
    long long[::1] entries, Py_ssize_t slots, long long first, long long second
) except -1

cdef long long _offset_of(long long[::1] entries, Py_ssize_t slots, bytes key) except? -1

@cython.locals(
    offsets=cython.longlong[::1], key_starts=cython.longlong[::1], key_ends=cython.longlong[::1],
    count=cython.Py_ssize_t, added=cython.Py_ssize_t, offset=cython.longlong,
    start=cython.Py_ssize_t, key=bytes, first=cython.longlong, second=cython.longlong,
    position=cython.Py_ssize_t,
)
cdef (Py_ssize_t, Py_ssize_t) _put_rows(
    long long[::1] entries, Py_ssize_t slots, Py_ssize_t room, bytes data, object spans,
    Py_ssize_t row, long long from_offset
) except *

@cython.locals(
    offsets=cython.longlong[::1], key_starts=cython.longlong[::1], key_ends=cython.longlong[::1],
    has_value=cython.uchar[::1], is_kept=cython.uchar[::1], row=cython.Py_ssize_t,
    kept=cython.Py_ssize_t, tombstones=cython.Py_ssize_t, keyless=cython.Py_ssize_t,
    offset=cython.longlong, start=cython.Py_ssize_t, keeps=cython.bint, key=bytes,
    first=cython.longlong, second=cython.longlong,
)
cdef (Py_ssize_t, Py_ssize_t, Py_ssize_t) _mark_rows(
    long long[::1] entries, Py_ssize_t slots, bytes data, object spans, long long end_offset,
    bint keeps_tombstones
) except *

@cython.locals(slot=cython.Py_ssize_t, old=cython.Py_ssize_t, new=cython.Py_ssize_t)
cdef int _move(
    long long[::1] entries, Py_ssize_t slots, long long[::1] larger, Py_ssize_t larger_slots
) except -1
