package main

import (
	"context"
	"sort"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is a consumer in a group. It reports its partitions whenever they change; the balancer is
// franz-go's default, cooperative-sticky.
type member struct {
	number int
	topic  string
	client *kgo.Client

	lock  sync.Mutex
	owned map[int32]bool
}

func (p *program) join(c command) error {
	m := &member{number: c.Member, topic: c.Topic, owned: map[int32]bool{}}
	changed := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.changed(partitions[m.topic], owns)
		}
	}
	client, err := newClient(
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(milliseconds("SESSION_TIMEOUT_MS")),
		kgo.HeartbeatInterval(milliseconds("HEARTBEAT_MS")),
		kgo.FetchMaxWait(milliseconds("FETCH_WAIT_MS")),
		kgo.OnPartitionsAssigned(changed(true)),
		kgo.OnPartitionsRevoked(changed(false)),
		kgo.OnPartitionsLost(changed(false)),
	)
	if err != nil {
		return err
	}
	m.client = client
	p.members.Store(c.Member, m)
	go m.poll()
	return nil
}

func (p *program) leave(number int) {
	if m, ok := p.members.LoadAndDelete(number); ok {
		m.(*member).client.Close()
	}
}

func (p *program) member(c command) *member {
	m, _ := p.members.Load(c.Member)
	return m.(*member)
}

func (m *member) changed(partitions []int32, owns bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range partitions {
		if owns {
			m.owned[partition] = true
		} else {
			delete(m.owned, partition)
		}
	}
	owned := []int{}
	for partition := range m.owned {
		owned = append(owned, int(partition))
	}
	sort.Ints(owned)
	tell(map[string]any{"member": m.number, "partitions": owned})
}

func (m *member) poll() {
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tell(map[string]any{"member": m.number, "read": []any{r.Partition, r.Offset, string(r.Value)}})
		})
	}
}

// commit adds the metadata at the only place that franz-go offers: just before it sends the request.
func (m *member) commit(ctx context.Context, places map[int32]place) (failed error) {
	offsets := map[int32]kgo.EpochOffset{}
	for partition, at := range places {
		offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: at.offset}
	}
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for i := range request.Topics {
			for j := range request.Topics[i].Partitions {
				partition := &request.Topics[i].Partitions[j]
				metadata := places[partition.Partition].metadata
				partition.Metadata = &metadata
			}
		}
		return nil
	})
	m.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{m.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			failed = err
			if err == nil {
				failed = firstError(response)
			}
		})
	return failed
}

func (m *member) seek(partition int32, offset int64) {
	to := map[int32]kgo.EpochOffset{partition: {Epoch: -1, Offset: offset}}
	m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{m.topic: to})
}
