package signing

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place returns a folder of a log in a data folder, and a key file outside of it.
func place(t *testing.T) (data, dir, file string) {
	t.Helper()
	base := t.TempDir()
	data = filepath.Join(base, "data")
	dir = filepath.Join(data, "audit")
	must(t, os.MkdirAll(dir, 0o700))
	return data, dir, filepath.Join(base, "etc", "audit-signing-key.pem")
}

func TestKeyFile(t *testing.T) {
	data, _, file := place(t)
	f, made, err := OpenFile(file, data)
	must(t, err)
	again, madeAgain, err := OpenFile(file, data)
	must(t, err)
	if !made || madeAgain || !f.Public().Equal(again.Public()) {
		t.Errorf("made %v, then %v", made, madeAgain)
	}
	public, err := ReadPublic(PublicPath(file))
	must(t, err)
	if !public.Equal(f.Public()) {
		t.Error("the public key beside is another one")
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}

	inside := filepath.Join(data, "key.pem")
	link := filepath.Join(filepath.Dir(file), "link")
	must(t, os.Symlink(data, link))
	for what, refused := range map[string]struct {
		path string
		do   func() error
		say  string
	}{
		"in the data folder":                 {inside, nil, "lies in the data folder"},
		"in it, by a link":                   {filepath.Join(link, "deep", "key.pem"), nil, "lies in the data folder"},
		"others than the server can read it": {file, func() error { return os.Chmod(file, 0o640) }, "others than the server can read it"},
		"its folder can be written":          {file, func() error { return os.Chmod(filepath.Dir(file), 0o777) }, "others can write to its folder"},
		"no key":                             {file, func() error { return os.WriteFile(file, []byte("hello"), 0o600) }, "neither PEM nor"},
		"where nothing can be made":          {"/proc/none/key.pem", nil, "name another place"},
		"a public key in the place":          {file, func() error { return os.WriteFile(file, PublicPEM(public), 0o600) }, "not an Ed25519 key"},
		"somebody else's, by its uid":        {file, func() error { return os.Chown(file, 12345, 0) }, "belongs to uid 12345"},
	} {
		t.Run(what, func(t *testing.T) {
			was, err := os.ReadFile(file)
			must(t, err)
			if refused.do != nil {
				must(t, refused.do())
			}
			if _, _, err := OpenFile(refused.path, data); err == nil || !strings.Contains(err.Error(), refused.say) {
				t.Errorf("%v, want %q", err, refused.say)
			}
			must(t, os.WriteFile(file, was, 0o600))
			must(t, os.Chown(file, os.Geteuid(), os.Getegid()))
			must(t, os.Chmod(file, 0o600))
			must(t, os.Chmod(filepath.Dir(file), 0o755)) //nolint:gosec // a test's folder
		})
	}
}

// TestRotation: one log, signed by three keys, is believed with each of them as the anchor; with a lost key in between,
// only as far as a trusted key vouches.
func TestRotation(t *testing.T) {
	data, dir, file := place(t)
	f, _, err := OpenFile(file, data)
	must(t, err)
	signer := NewHeads(f, dir, KeptBeside(file))
	l, err := audit.Open(audit.Options{Dir: dir, Signer: signer, SignEvery: 2, SignWithin: 10 * time.Millisecond})
	must(t, err)
	act := func() {
		t.Helper()
		for range 3 {
			_, err := l.AppendSync(t.Context(), audit.Record{Action: audit.ActionExec})
			must(t, err)
		}
		for end := time.Now().Add(10 * time.Second); l.State().Unsigned > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not signed: %v", l.State().SignErr)
			}
		}
	}
	act()
	anchors := []ed25519.PublicKey{f.Public()}
	for range 2 {
		old, fresh, err := Rotate(t.Context(), file, data, dir)
		must(t, err)
		if old != record.KeyID(anchors[len(anchors)-1]) || fresh == old {
			t.Errorf("%s follows %s", fresh, old)
		}
		act()
		public, err := ReadPublic(PublicPath(file))
		must(t, err)
		anchors = append(anchors, public)
	}
	must(t, l.Close())
	list, err := List(dir)
	must(t, err)
	if len(list) != 3 {
		t.Fatalf("%d keys", len(list))
	}
	check := func(anchor ed25519.PublicKey) verify.Result {
		t.Helper()
		expect, err := Kept(KeptBeside(file), dir)
		must(t, err)
		if len(expect) != 1 {
			t.Errorf("%d heads are kept", len(expect))
		}
		res, err := verify.Verify(t.Context(), dir, verify.Options{Keys: Trusted(list, anchor), Expect: expect})
		must(t, err)
		return res
	}
	for i, a := range anchors {
		if res := check(a); !res.OK || res.Writers[0].SignedWith != record.KeyID(anchors[2]) {
			t.Errorf("anchor %d: %+v", i, res)
		}
	}
	other, _, err := OpenFile(filepath.Join(t.TempDir(), "k", "key.pem"), data)
	must(t, err)
	if res := check(other.Public()); res.OK || res.FirstBad.Reason != verify.BadRechained {
		t.Errorf("with a key that has nothing to do with it: %+v", res)
	}
	if _, err := Enrol(t.Context(), dir, private{f.key.(private).PrivateKey}, nil); err != nil {
		t.Errorf("the key that signs: %v", err)
	}

	// A key that was lost: the new one vouches for the old ones, no key vouches for it.
	lost, err := Enrol(t.Context(), dir, other, nil)
	must(t, err)
	if list, err = List(dir); err != nil || !lost || len(list) != 4 {
		t.Fatalf("lost %v, %d keys, %v", lost, len(list), err)
	}
	if n := len(Trusted(list, anchors[0])); n != 3 {
		t.Errorf("the first key vouches for %d", n)
	}
	if n := len(Trusted(list, other.Public())); n != 4 {
		t.Errorf("the newest key vouches for %d", n)
	}
	if _, err := Enrol(t.Context(), dir, f, nil); err == nil || !strings.Contains(err.Error(), "was replaced by") {
		t.Errorf("a key that was replaced signs again: %v", err)
	}

	// A line that an attacker wrote into the list.
	text, err := os.ReadFile(filepath.Join(dir, ringFile))
	must(t, err)
	forged := list[3]
	forged.Since = forged.Since.Add(time.Hour)
	line, err := json.Marshal(forged)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, ringFile), append(text, line...), 0o600))
	if _, err := List(dir); err == nil {
		t.Error("a forged line is believed")
	}
}

// TestExternal: a socket and a command that sign, and ones that do not.
func TestExternal(t *testing.T) {
	data, dir, file := place(t)
	f, _, err := OpenFile(file, data)
	must(t, err)
	seed := f.key.(private).Seed()
	path := filepath.Join(t.TempDir(), "signer.sock")
	l, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(c)
			_, _ = c.Write([]byte(base64.StdEncoding.EncodeToString(ed25519.Sign(ed25519.NewKeyFromSeed(seed), text))))
			_ = c.Close()
		}
	}()
	script := filepath.Join(t.TempDir(), "sign")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\nexec openssl pkeyutl -sign -rawin -inkey \"$1\" -in /dev/stdin | base64 -w0\n"), 0o700)) //nolint:gosec // it is run
	for _, c := range []struct {
		how  string
		good bool
	}{{"unix:" + path, true}, {"/bin/echo hello", false}, {"/bin/false", false}, {"unix:/nowhere", false}, {"/bin/sleep 60", false}} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		h, err := NewHeads(NewExternal(c.how, f.Public()), dir, "").Sign(ctx, record.Head{Writer: "w1", Seq: 7, Hash: strings.Repeat("a", 64)})
		cancel()
		if (err == nil) != c.good || c.good && !h.SignedBy(f.Public()) {
			t.Errorf("%s: %v", c.how, err)
		}
	}
	sig, err := NewExternal(script+" "+file, f.Public()).Sign(t.Context(), []byte("text"))
	if err != nil {
		t.Logf("openssl cannot sign from a pipe here: %v", err)
	} else if !ed25519.Verify(f.Public(), []byte("text"), sig) {
		t.Error("a command's signature is wrong")
	}
}

// TestKeptHeads: a log whose end was cut is found by what lies beside the key.
func TestKeptHeads(t *testing.T) {
	data, dir, file := place(t)
	f, _, err := OpenFile(file, data)
	must(t, err)
	keep := KeptBeside(file)
	l, err := audit.Open(audit.Options{Dir: dir, Signer: NewHeads(f, dir, keep)})
	must(t, err)
	for range 10 {
		_, err := l.AppendSync(t.Context(), audit.Record{Action: audit.ActionExec})
		must(t, err)
	}
	must(t, l.Close())
	paths, err := filepath.Glob(filepath.Join(dir, l.Writer(), "*.jsonl"))
	must(t, err)
	text, err := os.ReadFile(paths[0])
	must(t, err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	must(t, os.WriteFile(paths[0], bytes.Join(lines[:4], nil), 0o600))
	expect, err := Kept(keep, dir)
	must(t, err)
	res, err := verify.Verify(t.Context(), dir, verify.Options{Expect: expect})
	must(t, err)
	if res.OK || res.FirstBad.Reason != verify.BadLost || res.FirstBad.Seq != 5 {
		t.Errorf("%+v", res)
	}
	must(t, Tidy(keep))
	if left, err := Kept(keep, dir); err != nil || len(left) != 1 {
		t.Errorf("tidied away: %v, %v", left, err)
	}
	must(t, os.RemoveAll(data))
	must(t, Tidy(keep))
	if left, err := Kept(keep, dir); err != nil || len(left) != 0 {
		t.Errorf("kept for a log that is no more: %v, %v", left, err)
	}
}
