package held

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestBytes: neither a caller nor all together hold more than their most, and what ends is free again.
func TestBytes(t *testing.T) {
	t.Parallel()
	b := New()
	b.Wait = time.Millisecond
	one := b.Of("ann")
	if err := one.Take(t.Context(), 10*OfCaller); err != nil { // more than there is: all of it
		t.Fatal(err)
	}
	other := b.Of("ann")
	if err := other.Take(t.Context(), 1); sandbox.HTTPStatus(err) != http.StatusTooManyRequests {
		t.Errorf("one byte more: %v", err)
	}
	one.Keep(OfCaller - 10)
	if err := other.Take(t.Context(), 10); err != nil {
		t.Errorf("what one gave back: %v", err)
	}
	held := int64(OfCaller)
	for n := 0; held < InAll; n++ {
		r := b.Of(fmt.Sprint("user ", n))
		defer r.End()
		take := min(OfCaller, InAll-held)
		if err := r.Take(t.Context(), take); err != nil {
			t.Fatal(err)
		}
		held += take
	}
	late := b.Of("bob")
	if err := late.Take(t.Context(), 1); sandbox.HTTPStatus(err) != http.StatusTooManyRequests {
		t.Errorf("one byte more than all: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := late.Take(gone, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("of a client that is gone: %v", err)
	}
	for range 2 {
		one.End()
		other.End()
		late.End()
	}
	if b.by["ann"] != nil || b.by["bob"] != nil {
		t.Error("a caller without requests is remembered")
	}
	again := b.Of("ann")
	defer again.End()
	if err := again.Take(t.Context(), OfCaller); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// TestWaits: a request waits a while for others to end.
func TestWaits(t *testing.T) {
	t.Parallel()
	b := New()
	first, second := b.Of("ann"), b.Of("ann")
	defer second.End()
	if err := first.Take(t.Context(), OfCaller); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, first.End)
	if err := second.Take(t.Context(), OfCaller); err != nil {
		t.Error(err)
	}
}

// TestFreeIsTaken: a request that does not wait takes what is free, however late the machine runs it.
func TestFreeIsTaken(t *testing.T) {
	t.Parallel()
	b := New()
	b.Wait = 0
	one := b.Of("ann")
	defer one.End()
	if err := one.Take(t.Context(), OfCaller); err != nil {
		t.Error(err)
	}
}

// TestAnswer: the longest answer of a request counts, beside its body, until the request ends. Short ones are free.
func TestAnswer(t *testing.T) {
	t.Parallel()
	b := New()
	b.Wait = time.Millisecond
	one, other := b.Of("ann"), b.Of("ann")
	if err := one.TakeBody(t.Context(), 1<<20, 1<<20); err != nil {
		t.Fatal(err)
	}
	left := func() int64 {
		t.Helper()
		for n := int64(OfCaller); n > 0; n -= Copies << 20 {
			if other.Take(t.Context(), n) == nil {
				other.End()
				return OfCaller - n
			}
		}
		return OfCaller
	}
	for _, answers := range [][]int64{{Short}, {1 << 20, 2 << 20, 3 << 20}, {1 << 20, 3 << 20}, {Short}} {
		keep := one.Answer(t.Context())
		for _, n := range answers {
			if err := keep(n); err != nil {
				t.Fatal(n, err)
			}
		}
		if want := Copies * (1<<20 + one.answer/Copies); left() != want {
			t.Errorf("after %d: %d bytes are held, want %d", answers, left(), want)
		}
	}
	if one.answer != Copies*3<<20 {
		t.Errorf("%d bytes for the longest", one.answer)
	}
	if err := other.Take(t.Context(), OfCaller-one.n); err != nil {
		t.Fatal(err)
	}
	if err := one.Answer(t.Context())(4 << 20); sandbox.HTTPStatus(err) != http.StatusTooManyRequests {
		t.Errorf("beyond all: %v", err)
	}
	if err := one.Answer(t.Context())(Short); err != nil {
		t.Errorf("a short one: %v", err)
	}
	one.End()
	other.End()
	if err := b.Of("ann").Take(t.Context(), OfCaller); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
