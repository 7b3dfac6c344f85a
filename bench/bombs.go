package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/skerry-sandbox/skerry/internal/attack/bomb"
)

const (
	bombThread = "bomb"
	// bombBatch calls are made with a bomb at work, then as many without, and so on: a noisy machine hurts both alike.
	bombBatch   = 25
	bombBatches = 8
	neighbourUp = 3.0 // what p99 may grow by
)

// bombs prints what a neighbour notices of a bomb in another sandbox.
func bombs(_ context.Context, b *bench) error {
	b.uses("neighbour")
	b.uses(bombThread)
	for _, bm := range bomb.All() {
		if b.bomb != "" && bm.Name != b.bomb {
			continue
		}
		done := b.progress(bm.Name)
		loaded, alone, err := b.beside(bm)
		done()
		if err != nil {
			return fmt.Errorf("%s: %w", bm.Name, err)
		}
		mine, without := sampled("beside "+bm.Name, loaded), sampled("without it", alone)
		b.row("ms", mine, &without, tail, bar{atMost: neighbourUp}, bm.Does)
	}
	return nil
}

// beside measures the neighbour's exec with and without a bomb, in turn.
func (b *bench) beside(bm bomb.Bomb) (loaded, alone []float64, err error) {
	for range bombBatches {
		if err := b.neighbour(&alone, nil); err != nil {
			return nil, nil, err
		}
		id, err := b.ignite(bm)
		if err != nil {
			return nil, nil, err
		}
		time.Sleep(300 * time.Millisecond) // until it has got to its limits
		err = b.neighbour(&loaded, func() error {
			// Some end by themselves, or by their limit: then the next one goes off.
			if running, err := b.running(id); err != nil || running {
				return err
			}
			id, err = b.ignite(bm)
			return err
		})
		// What fills memory goes with its sandbox.
		_, stopped := b.post(http.MethodDelete, "/api/threads/"+bombThread+"/sandbox", nil)
		if err := errors.Join(err, stopped); err != nil {
			return nil, nil, err
		}
	}
	return loaded, alone, nil
}

// neighbour adds the times of a batch of calls, before each of which it does between.
func (b *bench) neighbour(times *[]float64, between func() error) error {
	for range bombBatch {
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		began := time.Now()
		if _, err := b.post(http.MethodPost, "/api/threads/neighbour/exec", map[string]any{"argv": []string{"true"}}); err != nil {
			return err
		}
		*times = append(*times, since(began))
		time.Sleep(rest)
	}
	return nil
}

// ignite starts a bomb and returns its exec. A sandbox that the one before has just ended is asked for again.
func (b *bench) ignite(bm bomb.Bomb) (id string, err error) {
	for range 5 {
		var raw []byte
		raw, err = b.post(http.MethodPost, "/api/threads/"+bombThread+"/exec", map[string]any{"argv": bm.Argv(), "background": true, "timeout_s": 60})
		if err == nil {
			var r struct {
				ID string `json:"exec_id"`
			}
			err = json.Unmarshal(raw, &r)
			return r.ID, err
		}
		time.Sleep(time.Second)
	}
	return "", err
}

func (b *bench) running(id string) (bool, error) {
	raw, err := b.post(http.MethodGet, "/api/threads/"+bombThread+"/execs/"+id, nil)
	var r struct{ Status string }
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r.Status == "running", err
}
