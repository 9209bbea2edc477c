// franz-go, driven by tests/helpers/client/client_program.py, which describes the commands and their
// format. This file reads commands and answers them; members.go and admin.go do the work.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const timeout = 60 * time.Second

// command has the arguments of every command; each uses its own.
type command struct {
	ID         int                `json:"id"`
	Op         string             `json:"op"`
	Member     int                `json:"member"`
	Group      string             `json:"group"`
	Topic      string             `json:"topic"`
	Partitions int32              `json:"partitions"`
	Partition  int32              `json:"partition"`
	Offset     int64              `json:"offset"`
	Total      int                `json:"total"`
	When       string             `json:"when"`
	Settings   map[string]string  `json:"settings"`
	Changes    map[string]string  `json:"changes"`
	Values     map[int32][]string `json:"values"`
	Places     map[int32]place    `json:"places"`
	Offsets    map[int32]int64    `json:"offsets"`
	Before     map[int32]int64    `json:"before"`
}

// place is a committed offset, as [offset, metadata].
type place struct {
	offset   int64
	metadata string
}

func (p *place) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.offset, &p.metadata})
}

func (p place) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.offset, p.metadata})
}

// program has the client for all requests except those of members, which have their own clients.
type program struct {
	client  *kgo.Client
	admin   *kadm.Client
	members sync.Map // number -> *member
}

var output sync.Mutex

func tell(message map[string]any) {
	output.Lock()
	defer output.Unlock()
	line, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func milliseconds(name string) time.Duration {
	number, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}

func newClient(options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{
		kgo.ClientID("franz-go"),
		kgo.SeedBrokers(os.Getenv("BOOTSTRAP_SERVERS")),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	return kgo.NewClient(append(common, options...)...)
}

func (p *program) answer(c command) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	result, err := p.run(ctx, c)
	var refused *kerr.Error
	switch {
	case errors.As(err, &refused):
		tell(map[string]any{"id": c.ID, "refused": refused.Message})
	case err != nil:
		tell(map[string]any{"id": c.ID, "failed": err.Error()})
	default:
		tell(map[string]any{"id": c.ID, "ok": result})
	}
}

func (p *program) run(ctx context.Context, c command) (any, error) {
	switch c.Op {
	case "join":
		return nil, p.join(c)
	case "leave":
		p.leave(c.Member)
		return nil, nil
	case "commit":
		return nil, p.member(c).commit(ctx, c.Places)
	case "seek":
		p.member(c).seek(c.Partition, c.Offset)
		return nil, nil
	case "produce":
		return nil, p.produce(ctx, c)
	}
	return p.administrate(ctx, c)
}

func (p *program) produce(ctx context.Context, c command) error {
	var records []*kgo.Record
	for partition, values := range c.Values {
		for _, value := range values {
			record := kgo.StringRecord(value)
			record.Topic, record.Partition = c.Topic, partition
			records = append(records, record)
		}
	}
	return p.client.ProduceSync(ctx, records...).FirstErr()
}

func main() {
	client, err := newClient()
	if err != nil {
		panic(err)
	}
	p := &program{client: client, admin: kadm.NewClient(client)}
	var pending sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		pending.Add(1)
		go func() {
			defer pending.Done()
			p.answer(c)
		}()
	}
	pending.Wait()
	p.members.Range(func(number, _ any) bool {
		p.leave(number.(int))
		return true
	})
	client.Close()
}
