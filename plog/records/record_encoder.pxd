# C types of the variables in record_encoder.py when Cython compiles it; all others stay objects.

cimport cython

@cython.locals(
    parts=list,
    varints=tuple,
    delta=cython.longlong,
    zigzag=cython.ulonglong,
    encoded_headers=bytes,
)
cdef list _encode(object records, object base_offset, object base_timestamp)

cdef long long _offset_delta(object offset, object base_offset, object previous_delta) except -1

cdef bytes _encode_headers(object headers)

@cython.locals(encoded=bytearray)
cdef bytes _encode_varint(unsigned long long value)
