package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	bin      string
	cache    string
	driver   string
	duration time.Duration
	threads  int
	every    time.Duration
	seed     uint64
	keep     bool
	packs    int
	provide  string // this program provides packs at this address, and does nothing else
	first    int
}

func main() {
	// Children get a signal when the thread that started them ends: this one stays to the end.
	runtime.LockOSThread()
	var s settings
	flag.StringVar(&s.bin, "bin", "bin", "folder of skerry and skerry-sandboxd")
	flag.StringVar(&s.cache, "cache", "/var/cache/skerry", "folder of the images and of containerd")
	flag.StringVar(&s.driver, "driver", "oci", "oci, or containerd or docker: one of its own, which is killed, too")
	flag.DurationVar(&s.duration, "duration", 10*time.Minute, "how long")
	flag.IntVar(&s.threads, "threads", 30, "how many threads work")
	flag.DurationVar(&s.every, "every", 5*time.Second, "how often something is killed, about")
	flag.Uint64Var(&s.seed, "seed", 0, "of the choice what is killed when; 0: a new one")
	flag.BoolVar(&s.keep, "keep", false, "keep the data folder and the logs")
	flag.IntVar(&s.packs, "packs", 0, "how many tool packs are called, from programs of ten that are killed, too")
	flag.StringVar(&s.provide, "provide", "", "provide packs at this address; chaos starts itself so")
	flag.IntVar(&s.first, "first", 0, "the number of the first pack to provide")
	flag.Parse()
	if s.provide != "" {
		if err := servePacks(s.provide, s.first); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			os.Exit(1)
		}
		return
	}
	s.packs = (s.packs + packsOfProgram - 1) / packsOfProgram * packsOfProgram
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	fmt.Printf("chaos: %s, %d threads, %d packs, driver %s, seed %d\n", s.duration, s.threads, s.packs, s.driver, s.seed)
	f, err := newFleet(s)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.clear(context.WithoutCancel(ctx))
		}
		err = errors.Join(err, f.remove(err != nil))
	}()
	if err := f.start(ctx); err != nil {
		return err
	}
	before, err := f.goroutines(ctx)
	if err != nil {
		return err
	}
	w := newWork(f)
	f.names = w.names
	working, end := context.WithTimeout(ctx, s.duration)
	defer end()
	h := newHarm(f, s)
	harmed := make(chan struct{})
	go func() { defer close(harmed); h.run(working) }()
	w.run(working)
	<-harmed
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := f.mend(ctx); err != nil {
		return err
	}
	v := &verdict{fleet: f, work: w, before: before}
	problems := v.judge(ctx)
	h.print()
	w.print()
	v.print()
	if len(problems) > 0 {
		for _, p := range problems {
			fmt.Println("WRONG:", p)
		}
		return fmt.Errorf("%d things are wrong; seed %d", len(problems), s.seed)
	}
	fmt.Println("chaos: all is as it should be")
	return nil
}
