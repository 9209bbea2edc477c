package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (p *program) administrate(ctx context.Context, c command) (any, error) {
	switch c.Op {
	case "create_topic":
		return nil, p.createTopic(ctx, c)
	case "delete_topic":
		_, err := p.admin.DeleteTopic(ctx, c.Topic)
		return nil, err
	case "topics":
		listed, err := p.admin.ListTopics(ctx)
		return listed.Names(), err
	case "partition_count":
		listed, err := p.admin.ListTopics(ctx, c.Topic)
		return len(listed[c.Topic].Partitions), err
	case "add_partitions":
		added, err := p.admin.UpdatePartitions(ctx, c.Total, c.Topic)
		if err == nil {
			err = added.Error()
		}
		return nil, err
	case "settings":
		return p.settings(ctx, c.Topic)
	case "alter_settings":
		return nil, p.alterSettings(ctx, c)
	case "delete_records":
		deleted, err := p.admin.DeleteRecords(ctx, at(c.Topic, c.Before))
		if err == nil {
			err = deleted.Error()
		}
		return nil, err
	case "offsets":
		return p.offsets(ctx, c)
	}
	return p.administrateGroups(ctx, c)
}

func (p *program) administrateGroups(ctx context.Context, c command) (any, error) {
	switch c.Op {
	case "groups":
		listed, err := p.admin.ListGroups(ctx)
		return listed.Groups(), err
	case "describe_group":
		described, err := p.admin.DescribeGroups(ctx, c.Group)
		group := described[c.Group]
		if err == nil {
			err = group.Err
		}
		clients := []string{}
		for _, member := range group.Members {
			clients = append(clients, member.ClientID)
		}
		return []any{group.State, clients}, err
	case "delete_group":
		_, err := p.admin.DeleteGroup(ctx, c.Group)
		return nil, err
	case "committed":
		return p.committed(ctx, c)
	case "alter_offsets":
		return nil, p.admin.CommitAllOffsets(ctx, c.Group, at(c.Topic, c.Offsets))
	}
	return nil, fmt.Errorf("no command %q", c.Op)
}

func (p *program) createTopic(ctx context.Context, c command) error {
	settings := map[string]*string{}
	for name, value := range c.Settings {
		value := value
		settings[name] = &value
	}
	_, err := p.admin.CreateTopic(ctx, c.Partitions, 1, settings, c.Topic)
	return err
}

func (p *program) settings(ctx context.Context, topic string) (any, error) {
	described, err := p.admin.DescribeTopicConfigs(ctx, topic)
	settings := map[string]string{}
	for _, resource := range described {
		if resource.Err != nil {
			return nil, resource.Err
		}
		for _, each := range resource.Configs {
			settings[each.Key] = each.MaybeValue()
		}
	}
	return settings, err
}

func (p *program) alterSettings(ctx context.Context, c command) error {
	var changes []kadm.AlterConfig
	for name, value := range c.Changes {
		value := value
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	altered, err := p.admin.AlterTopicConfigs(ctx, changes, c.Topic)
	for _, each := range altered {
		if each.Err != nil {
			return each.Err
		}
	}
	return err
}

func (p *program) committed(ctx context.Context, c command) (any, error) {
	fetched, err := p.admin.FetchOffsets(ctx, c.Group)
	places := map[int32]place{}
	for partition, each := range fetched[c.Topic] {
		if each.Err != nil {
			return nil, each.Err
		}
		places[partition] = place{each.At, each.Metadata}
	}
	return places, err
}

func (p *program) offsets(ctx context.Context, c command) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	switch c.When {
	case "earliest":
		listed, err = p.admin.ListStartOffsets(ctx, c.Topic)
	case "latest":
		listed, err = p.admin.ListEndOffsets(ctx, c.Topic)
	default:
		var ms int64
		if ms, err = strconv.ParseInt(c.When, 10, 64); err == nil {
			listed, err = p.admin.ListOffsetsAfterMilli(ctx, ms, c.Topic)
		}
	}
	offsets := map[int32]int64{}
	for partition, each := range listed[c.Topic] {
		offsets[partition] = each.Offset
	}
	if err == nil {
		err = listed.Error()
	}
	return offsets, err
}

func at(topic string, offsets map[int32]int64) kadm.Offsets {
	at := kadm.Offsets{}
	for partition, offset := range offsets {
		at.AddOffset(topic, partition, offset, -1)
	}
	return at
}

func firstError(response *kmsg.OffsetCommitResponse) error {
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}
