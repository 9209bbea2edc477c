# C types of the variables in produced_batch.py when Cython compiles it; all others stay objects.

cimport cython

@cython.locals(
    size=cython.Py_ssize_t, fields=tuple, base_offset=cython.longlong, length=cython.Py_ssize_t,
    magic=cython.int, crc=cython.longlong, attributes=cython.int,
    last_offset_delta=cython.longlong, max_timestamp=cython.longlong,
    producer_id=cython.longlong, producer_epoch=cython.int, base_sequence=cython.int,
    count=cython.longlong,
)
cpdef object check_produced_batch(object data, long long max_bytes, long long latest_timestamp)
