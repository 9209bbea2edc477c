# C types of the variables in codec.py when Cython compiles it; all other variables stay objects.
#
# `data` is `bytes`, so that reading a single byte checks its position. `cut` is the address of the
# same bytes: its slices are not checked, so only positions that _span returned may be used.

cimport cython

@cython.locals(data=bytes)
cdef list _decode(object payload, object header, object record_type, object topic, object partition)

@cython.locals(
    base_offset=cython.longlong, base_timestamp=cython.longlong,
    lowest=cython.longlong, highest=cython.longlong, last_delta=cython.longlong,
    cut=cython.p_uchar, position=cython.Py_ssize_t, _=cython.Py_ssize_t,
    end=cython.Py_ssize_t, delta=cython.longlong, timestamp_delta=cython.longlong,
    start=cython.Py_ssize_t, byte=cython.uchar,
)
cdef Py_ssize_t _decode_into(
    list records, bytes data, object header, object record_type, object topic, object partition
) except -1

@cython.locals(
    base_offset=cython.longlong, base_timestamp=cython.longlong,
    lowest=cython.longlong, highest=cython.longlong, last_delta=cython.longlong,
    is_append_time=cython.bint, append_time=cython.longlong,
    cut=cython.p_uchar, position=cython.Py_ssize_t, _=cython.Py_ssize_t,
    rows=cython.Py_ssize_t, next_position=cython.Py_ssize_t, next_delta=cython.longlong,
    offsets=cython.longlong[::1], timestamps=cython.longlong[::1],
    has_key=cython.uchar[::1], key_ends=cython.int[::1], key_end=cython.Py_ssize_t,
    has_value=cython.uchar[::1], value_ends=cython.int[::1], value_end=cython.Py_ssize_t,
    keys=list, values=list,
    end=cython.Py_ssize_t, delta=cython.longlong, timestamp_delta=cython.longlong,
    start=cython.Py_ssize_t, byte=cython.uchar,
)
cpdef (Py_ssize_t, Py_ssize_t, long long) decode_into_columns(
    bytes data, object header, object columns, Py_ssize_t row, long long from_offset
) except *

@cython.locals(
    base_offset=cython.longlong, base_timestamp=cython.longlong,
    lowest=cython.longlong, highest=cython.longlong, last_delta=cython.longlong,
    delta=cython.longlong, position=cython.Py_ssize_t,
    is_append_time=cython.bint, append_time=cython.longlong,
    offsets=cython.longlong[::1], timestamps=cython.longlong[::1], starts=cython.longlong[::1],
    key_starts=cython.longlong[::1], key_ends=cython.longlong[::1],
    has_value=cython.uchar[::1], row=cython.Py_ssize_t,
    end=cython.Py_ssize_t, timestamp_delta=cython.longlong,
    start=cython.Py_ssize_t, byte=cython.uchar,
)
cdef Py_ssize_t _fill_spans(bytes data, object header, object spans) except -1

@cython.locals(
    base_offset=cython.longlong, base_timestamp=cython.longlong,
    lowest=cython.longlong, highest=cython.longlong, last_delta=cython.longlong,
    _=cython.Py_ssize_t, end=cython.Py_ssize_t, timestamp_delta=cython.longlong,
    key_start=cython.Py_ssize_t, _value_start=cython.Py_ssize_t, byte=cython.uchar,
)
cdef (Py_ssize_t, long long, long long) _walk(
    list heads, bytes data, object header, Py_ssize_t count,
    Py_ssize_t position, long long delta, long long headers_left
) except *

@cython.locals(
    size=cython.ulonglong, end=cython.Py_ssize_t, byte=cython.uchar, zigzag=cython.ulonglong,
    timestamp_delta=cython.longlong, delta=cython.longlong,
)
cdef (Py_ssize_t, Py_ssize_t, long long, long long) _head(
    bytes data, Py_ssize_t position, long long previous_delta, long long last_delta
) except *

@cython.locals(byte=cython.uchar, next_byte=cython.uchar)
cdef (unsigned long long, Py_ssize_t) _varint(bytes data, Py_ssize_t position, int bits) except *

@cython.locals(
    value=cython.ulonglong, part=cython.ulonglong, byte=cython.uchar, shift=cython.int
)
cdef (unsigned long long, Py_ssize_t) _long_varint(
    bytes data, Py_ssize_t position, int bits
) except *

@cython.locals(byte=cython.uchar, size=cython.ulonglong, stop=cython.Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) _span(bytes data, Py_ssize_t position, Py_ssize_t end) except *

@cython.locals(count=cython.longlong)
cdef (Py_ssize_t, Py_ssize_t) _header_count(
    bytes data, Py_ssize_t position, Py_ssize_t end
) except *

@cython.locals(
    cut=cython.p_uchar, headers=list, count=cython.Py_ssize_t, _=cython.Py_ssize_t,
    start=cython.Py_ssize_t,
)
cdef tuple _headers(bytes data, Py_ssize_t position, Py_ssize_t end)

@cython.locals(
    count=cython.Py_ssize_t, _=cython.Py_ssize_t,
    start=cython.Py_ssize_t, _value_start=cython.Py_ssize_t,
)
cdef long long _skip_headers(
    bytes data, Py_ssize_t position, Py_ssize_t end, long long headers_left
) except -1
