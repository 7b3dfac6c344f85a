package identity

import (
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of the file and of one line.
const (
	maxFile  = 1 << 20
	maxLines = 10_000
	maxLine  = 16 << 10
	maxPacks = 100
	maxName  = 128
	minRSA   = 3072 // bits
	maxRSA   = 16384
)

// typeX509 is the type of a line that names the public key of a TLS client's certificate.
const typeX509 = "x509-spki-sha256"

// entry is one key with what it may provide.
type entry struct {
	key  ssh.PublicKey // nil for one of TLS
	spki string        // hex, of one of TLS
	sandbox.PackKey
}

var keyTypes = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA, typeX509}

var packPattern = regexp.MustCompile(`^[a-z0-9-]{0,63}\*?$`)

// parse reads a file. A line that is wrong is left out, and named among the problems.
func parse(text []byte) (list []entry, problems []string) {
	n := 0
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		n++
		if n > maxLines {
			return list, append(problems, fmt.Sprintf("line %d and those behind it: at most %d lines count", n, maxLines))
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		e, err := parseLine(string(line))
		if err != nil {
			problems = append(problems, fmt.Sprintf("line %d: %s", n, err))
			continue
		}
		e.File = true
		list = append(list, e)
	}
	return list, problems
}

// parseLine reads "[options] type key [name]".
func parseLine(line string) (entry, error) {
	var e entry
	if len(line) > maxLine || !utf8.ValidString(line) {
		return e, fmt.Errorf("use at most %d bytes of UTF-8", maxLine)
	}
	first, rest := word(line)
	if !slices.Contains(keyTypes, first) {
		if err := e.options(first); err != nil {
			return e, err
		}
		first, rest = word(rest)
	}
	text, name := word(rest)
	if e.Name = strings.TrimSpace(name); len(e.Name) > maxName {
		return e, fmt.Errorf("the name has more than %d bytes", maxName)
	}
	return e, e.setKey(first, text)
}

// word returns what stands before the first space that is in no quotes, and what stands behind it.
func word(line string) (first, rest string) {
	quoted := false
	for i := range len(line) {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case (c == ' ' || c == '\t') && !quoted:
			return line[:i], strings.TrimLeft(line[i:], " \t")
		}
	}
	return line, ""
}

// options reads name="value" and flags, with commas between them.
func (e *entry) options(text string) error {
	for text != "" {
		var name, value string
		if i := strings.IndexAny(text, `,=`); i >= 0 && text[i] == '=' {
			name = text[:i]
			var closed bool
			rest, quoted := strings.CutPrefix(text[i+1:], `"`)
			if value, text, closed = strings.Cut(rest, `"`); !quoted || !closed {
				return fmt.Errorf("option %.40q: its value stands in quotes", name)
			}
			if text != "" && text[0] != ',' {
				return fmt.Errorf("option %.40q: a comma or a space stands behind its value", name)
			}
			text = strings.TrimPrefix(text, ",")
		} else {
			name, text, _ = strings.Cut(text, ",")
		}
		if err := e.option(name, value); err != nil {
			return err
		}
	}
	return nil
}

func (e *entry) option(name, value string) error {
	switch name {
	case "cert-authority":
		e.Authority = true
	case "tenant":
		e.Tenant = value
		return sandbox.CheckOwnerName("tenant", value)
	case "packs":
		e.Packs = listOf(value)
		return checkPacks(e.Packs)
	case "capabilities":
		var err error
		e.Capabilities, err = sandbox.CheckCapabilities(listOf(value))
		if e.Capabilities == nil {
			e.Capabilities = []string{}
		}
		return err
	case "expiry-time":
		at, err := expiry(value)
		e.ExpiresAt = &at
		return err
	default:
		return fmt.Errorf("there is no option %.40q; there are cert-authority, tenant, packs, capabilities and expiry-time, before a key of the types %s", name, strings.Join(keyTypes, ", "))
	}
	return nil
}

func listOf(text string) []string {
	list := []string{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

func checkPacks(names []string) error {
	if len(names) > maxPacks {
		return sandbox.Errorf(sandbox.Invalid, "packs: at most %d", maxPacks)
	}
	for _, n := range names {
		if n == "" || !packPattern.MatchString(n) {
			return sandbox.Errorf(sandbox.Invalid, "packs: %.80q is not the name of a pack, nor the beginning of some, such as sql-*", n)
		}
	}
	return nil
}

// expiry reads a time as authorized_keys has it: YYYYMMDD[HHMM[SS]], with or without Z; it is in UTC.
func expiry(text string) (time.Time, error) {
	digits := strings.TrimSuffix(text, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(layout) == len(digits) {
			at, err := time.Parse(layout, digits)
			if err == nil {
				return at.UTC(), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("expiry-time: %.40q is not YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS", text)
}

// setKey reads a key.
func (e *entry) setKey(kind, text string) error {
	if kind == typeX509 {
		sum, err := hex.DecodeString(text)
		if err != nil || len(sum) != 32 {
			return fmt.Errorf("%s: write the SHA-256 of the certificate's public key in 64 hex digits", typeX509)
		}
		if e.Authority {
			return fmt.Errorf("%s: an authority of certificates is that of the listener", typeX509)
		}
		e.spki = strings.ToLower(text)
		e.ID, e.Key = "SPKI:"+e.spki, kind+" "+e.spki
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("the key is not base64")
	}
	key, err := ssh.ParsePublicKey(raw)
	if err != nil {
		return fmt.Errorf("the key cannot be read: %.200w", err)
	}
	if key.Type() != kind {
		return fmt.Errorf("the key is of the type %.40q, and the line says %.40q", key.Type(), kind)
	}
	if err := strong(key); err != nil {
		return err
	}
	e.key = key
	e.ID, e.Key = ssh.FingerprintSHA256(key), kind+" "+text
	return nil
}

// strong refuses keys of other kinds, and RSA keys that are too short, or so long that they cost too much.
func strong(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521:
		return nil
	case ssh.KeyAlgoRSA:
		crypto, ok := key.(ssh.CryptoPublicKey)
		if !ok {
			break
		}
		public, ok := crypto.CryptoPublicKey().(*rsa.PublicKey)
		if !ok {
			break
		}
		if bits := public.N.BitLen(); bits < minRSA || bits > maxRSA {
			return fmt.Errorf("an RSA key has %d to %d bits, and this one has %d", minRSA, maxRSA, bits)
		}
		return nil
	}
	return fmt.Errorf("keys of the type %.60q are not taken: use Ed25519, ECDSA, or RSA of at least %d bits", key.Type(), minRSA)
}
