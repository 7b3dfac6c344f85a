package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

// packsOfProgram are how many packs one program has: they die together.
const packsOfProgram = 10

// packEcho is the argument and the result of the tool of each pack.
type packEcho struct {
	Text string `json:"text"`
}

func packName(i int) string { return fmt.Sprintf("pack%03d", i) }

// servePacks is this program as one that provides packs: first, and those behind it.
func servePacks(url string, first int) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	errs := make(chan error, packsOfProgram)
	for i := range packsOfProgram {
		p := packs.New(packName(first+i), "1.0.0")
		err := packs.Tool(p, "echo", "Returns a text after a while", func(ctx context.Context, in packEcho) (packEcho, error) {
			wait(ctx, time.Duration(rand.Int64N(int64(50*time.Millisecond)))) //nolint:gosec // it hides nothing
			return in, ctx.Err()
		})
		if err != nil {
			return err
		}
		go func() { errs <- p.Serve(ctx, packs.Server{URL: url, Log: log, Drain: 5 * time.Second}) }()
	}
	for range packsOfProgram {
		if err := <-errs; err != nil {
			log.Error("a pack ended", "error", err)
		}
	}
	return nil
}

// balancer passes each connection on to a server that takes it, as what stands before several servers does.
type balancer struct {
	listener net.Listener
	servers  []string
	wg       sync.WaitGroup
}

func newBalancer(servers []string) (*balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: l, servers: servers}
	b.wg.Go(b.accept)
	return b, nil
}

func (b *balancer) url() string { return "http://" + b.listener.Addr().String() }

func (b *balancer) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.pass(c) })
	}
}

func (b *balancer) pass(c net.Conn) {
	defer c.Close()
	for _, i := range rand.Perm(len(b.servers)) { //nolint:gosec // it hides nothing
		s, err := net.DialTimeout("tcp", b.servers[i], time.Second)
		if err != nil {
			continue
		}
		defer s.Close()
		ends := make(chan struct{}, 2)
		one := func(to, from net.Conn) {
			_, _ = io.Copy(to, from) // the other side sees the end
			ends <- struct{}{}
		}
		b.wg.Go(func() { one(s, c) })
		b.wg.Go(func() { one(c, s) })
		<-ends
		return
	}
}

// close ends the listener. Connections end with the programs on both sides.
func (b *balancer) close() error {
	err := b.listener.Close()
	b.wg.Wait()
	return err
}

// addPacks prepares the programs that provide packs.
func (f *fleet) addPacks() error {
	if f.packs == 0 {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	addresses := make([]string, 0, len(f.servers))
	for _, s := range f.servers {
		addresses = append(addresses, s.url[len("http://"):])
	}
	if f.balancer, err = newBalancer(addresses); err != nil {
		return err
	}
	for first := 0; first < f.packs; first += packsOfProgram {
		f.programs = append(f.programs, &process{
			name: fmt.Sprintf("program of %s", packName(first)), log: filepath.Join(f.dir, "packs.log"),
			argv: []string{self, "-provide", f.balancer.url(), "-first", fmt.Sprint(first)},
		})
	}
	return nil
}

// packCalls are what one turn of a thread calls at the same time.
const packCalls = 5

// callPacks makes calls of tools of packs by any server.
func (w *work) callPacks(ctx context.Context, r *rand.Rand, thread, token string) {
	var wg sync.WaitGroup
	for i := range packCalls {
		text := fmt.Sprintf("%s-%d", token, i)
		body, err := json.Marshal(map[string]any{"tool": packName(r.IntN(w.packs)) + "__echo", "input": packEcho{text}, "content": true})
		if err != nil {
			panic(err) // of strings
		}
		server := w.any(r)
		wg.Go(func() {
			status, answer, err := w.call(ctx, server, http.MethodPost, "/api/threads/"+thread+"/tools/call", body)
			var res struct {
				Structured packEcho `json:"structured_content"`
				IsError    bool     `json:"is_error"`
			}
			how := outcome(status, answer, err)
			if how == "ok" {
				switch err := json.Unmarshal(answer, &res); {
				case err != nil:
					how = "no answer that can be read"
				case res.IsError:
					how = "the tool's error"
				case res.Structured.Text != text:
					how = "ANOTHER CALL'S RESULT"
					w.mu.Lock()
					w.mixed++
					w.mu.Unlock()
				}
			}
			w.count("tool call", how)
			w.mu.Lock()
			w.calls++
			w.mu.Unlock()
		})
	}
	wg.Wait()
}
