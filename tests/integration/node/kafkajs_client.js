// kafkajs, driven by tests/helpers/client/client_program.py, which describes the commands and their format.
'use strict'

const readline = require('node:readline')
const { Kafka, ConfigResourceTypes, KafkaJSError, logLevel } = require('kafkajs')

const milliseconds = (name) => Number(process.env[name])
const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [process.env.BOOTSTRAP_SERVERS],
  logLevel: logLevel.NOTHING,
})
const admin = kafka.admin({ retry: { initialRetryTime: 50, retries: 3 } })
const producer = kafka.producer()
const members = new Map()

const tell = (message) => process.stdout.write(JSON.stringify(message) + '\n')
const entries = (object) => Object.entries(object).map(([key, value]) => [Number(key), value])

async function join({ member, group, topic }) {
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: milliseconds('SESSION_TIMEOUT_MS'),
    rebalanceTimeout: 10000,
    heartbeatInterval: milliseconds('HEARTBEAT_MS'),
    maxWaitTimeInMs: milliseconds('FETCH_WAIT_MS'),
    retry: { initialRetryTime: 50 },
  })
  const owns = (partitions) => tell({ member, partitions })
  consumer.on(consumer.events.REBALANCING, () => owns([]))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => owns(payload.memberAssignment[topic] || []))
  members.set(member, { consumer, topic })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) =>
      tell({ member, read: [partition, Number(message.offset), message.value.toString()] }),
  })
}

async function leave({ member }) {
  const known = members.get(member)
  members.delete(member)
  if (known) await known.consumer.disconnect()
}

async function commit({ member, places }) {
  const { consumer, topic } = members.get(member)
  const offsets = entries(places).map(([partition, [offset, metadata]]) => ({
    topic, partition, offset: String(offset), metadata,
  }))
  await consumer.commitOffsets(offsets)
}

async function seek({ member, partition, offset }) {
  const { consumer, topic } = members.get(member)
  consumer.seek({ topic, partition, offset: String(offset) })
}

async function produce({ topic, values }) {
  const messages = entries(values).flatMap(([partition, each]) => each.map((value) => ({ partition, value })))
  await producer.send({ topic, messages })
}

async function committed({ group, topic }) {
  const [told] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  const known = told.partitions.filter(({ offset }) => offset !== '-1')
  return Object.fromEntries(known.map(({ partition, offset, metadata }) => [partition, [Number(offset), metadata || '']]))
}

async function createTopic({ topic, partitions, settings }) {
  const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }))
  const made = await admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }] })
  if (!made) throw new KafkaJSError('there already')
}

async function partitionCount({ topic }) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  return topics[0].partitions.length
}

async function settings({ topic }) {
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
  const told = await admin.describeConfigs({ includeSynonyms: false, resources })
  return Object.fromEntries(told.resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]))
}

async function alterSettings({ topic, changes }) {
  const configEntries = Object.entries(changes).map(([name, value]) => ({ name, value }))
  await admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
}

async function describeGroup({ group }) {
  const { groups } = await admin.describeGroups([group])
  return [groups[0].state, groups[0].members.map(({ clientId }) => clientId)]
}

async function alterOffsets({ group, topic, offsets }) {
  const partitions = entries(offsets).map(([partition, offset]) => ({ partition, offset: String(offset) }))
  await admin.setOffsets({ groupId: group, topic, partitions })
}

async function deleteRecords({ topic, before }) {
  const partitions = entries(before).map(([partition, offset]) => ({ partition, offset: String(offset) }))
  await admin.fetchTopicOffsets(topic) // deleteTopicRecords finds no leader before another request.
  await admin.deleteTopicRecords({ topic, partitions })
}

async function offsets({ topic, when }) {
  const told = /^\d+$/.test(when)
    ? await admin.fetchTopicOffsetsByTimestamp(topic, Number(when))
    : await admin.fetchTopicOffsets(topic)
  const wanted = { earliest: 'low', latest: 'high' }[when] || 'offset'
  return Object.fromEntries(told.map((each) => [each.partition, Number(each[wanted])]))
}

const commands = {
  join,
  leave,
  commit,
  seek,
  produce,
  committed,
  settings,
  offsets,
  create_topic: createTopic,
  delete_topic: ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  topics: () => admin.listTopics(),
  partition_count: partitionCount,
  add_partitions: async ({ topic, total }) => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
  },
  alter_settings: alterSettings,
  groups: async () => (await admin.listGroups()).groups.map(({ groupId }) => groupId),
  describe_group: describeGroup,
  delete_group: ({ group }) => admin.deleteGroups([group]),
  alter_offsets: alterOffsets,
  delete_records: deleteRecords,
}

async function answer({ id, op, ...given }) {
  try {
    const ok = await commands[op](given)
    tell({ id, ok: ok === undefined ? null : ok })
  } catch (error) {
    tell({ id, [error instanceof KafkaJSError ? 'refused' : 'failed']: error.message })
  }
}

async function main() {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  await admin.connect()
  await producer.connect()
  const pending = []
  for await (const line of lines) pending.push(answer(JSON.parse(line)))
  await Promise.all(pending)
  await Promise.all([...members.keys()].map((member) => leave({ member })))
  await producer.disconnect()
  await admin.disconnect()
}

main()
