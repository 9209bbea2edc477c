"""The client's side of transactions: all of them are committed, or none is (KIP-98, 360, 447, 890).

`state` says what a transaction is in and what may follow; `verdicts` what a broker's refusal means
for it; `coordinator` asks those who coordinate it; `conductor` does things in their order, for
`producer`, which is the `ProducerCore` of a producer with a ``transactional.id``. `calls` is what
an application calls, `context` the same as a ``with``.
"""
