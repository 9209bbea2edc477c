# C types of the variables in single_produce.py when Cython compiles it; all others stay objects.
#
# `head` is `bytes`, so that reading a single byte checks its position.

cimport cython

cdef class SingleProduce:
    cdef public int api_version
    cdef public int correlation_id
    cdef public object client_id
    cdef public int acks
    cdef public int timeout_ms
    cdef public object topic
    cdef public object topic_id
    cdef public int partition
    cdef public object records
    cdef public object place

    @cython.locals(
        tags=bytes, rest=bytes, place=bytes, start=bytes, result=bytes, size=cython.Py_ssize_t
    )
    cpdef bytes frame_response(
        self, long long base_offset, long long log_append_time_ms, long long log_start_offset
    )

cpdef object decode_single_produce(object frame)

@cython.locals(
    version=cython.int, length=cython.Py_ssize_t, position=cython.Py_ssize_t,
    transactional_id=cython.int, acks=cython.int, timeout_ms=cython.int, single=SingleProduce,
)
cdef object _decode(object frame, bytes head)

@cython.locals(
    length=cython.Py_ssize_t, end=cython.Py_ssize_t, nbytes=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
)
cdef object _decode_data(SingleProduce single, object frame, bytes head, Py_ssize_t position)

@cython.locals(
    position=cython.Py_ssize_t, length=cython.Py_ssize_t, nbytes=cython.Py_ssize_t,
    shift=cython.int, byte=cython.int, end=cython.Py_ssize_t,
)
cdef object _decode_flexible_data(SingleProduce single, object frame, bytes head, Py_ssize_t start)

@cython.locals(value=cython.int)
cdef int _int16(bytes data, Py_ssize_t position) except? -1

@cython.locals(value=cython.longlong)
cdef int _int32(bytes data, Py_ssize_t position) except? -1

@cython.locals(end=cython.Py_ssize_t)
cdef object _text(bytes data, Py_ssize_t position, Py_ssize_t length)
