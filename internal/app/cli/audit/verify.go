package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/app/environment"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/signing"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

// Exit codes of `skerry audit verify`, besides 0 and 1, as docs/audit.md has them.
const (
	exitTampered = 2 // a record is not as it was written
	exitUnsigned = 3 // nothing wrong was found, and no signature vouches for (the end of) it
)

type verifyFlags struct {
	publicKey, checkpoint string
	segments, expect      []string
}

func newAuditVerify(api *client.Client) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use: "verify", Short: "Check that no audit record was changed, removed, reordered, inserted or hashed anew",
		Long: "Checks the audit log of the server, or, with --segments, the files of one, which needs no server.\n\n" +
			"Exit codes: 0 all is as it was written; 1 it could not be checked; 2 a record is not as it was written, and is named;\n" +
			"3 nothing wrong was found, and signatures that should vouch for it are missing or overdue.\n\n" +
			"That the end was cut off cannot be seen in the files alone. It is found against a head that is held elsewhere:\n" +
			"--expect-head or --checkpoint, Redis (without --segments), and those that the server keeps beside its signing key.",
		Example: "  skerry audit verify\n  skerry audit verify --segments /var/lib/skerry/audit --public-key audit.pub.pem\n" +
			"  skerry audit verify --segments /var/lib/skerry/audit --segments /mnt/archive\n" +
			"  skerry audit checkpoint > checkpoint.jsonl   # now, kept elsewhere\n  skerry audit verify --segments DIR --checkpoint checkpoint.jsonl",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			res, keyed, err := f.verify(cmd, api)
			if err != nil {
				return err
			}
			if api.JSON {
				err = output.JSON(cmd.OutOrStdout(), res)
			} else {
				err = printVerdict(cmd.OutOrStdout(), res)
			}
			switch {
			case err != nil:
				return err
			case !res.OK:
				return exit.Code(exitTampered)
			case slices.ContainsFunc(res.Writers, func(w verify.Writer) bool { return w.Overdue || keyed && w.SignedSeq == 0 }):
				return exit.Code(exitUnsigned)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&f.segments, "segments", nil, "the log's folder (<data>/audit): check its files, without a server; repeated: that of its archive, or of a copy")
	cmd.Flags().StringVar(&f.publicKey, "public-key", "", "file of a public key, of before or after rotations; default: the one of this host's configuration")
	cmd.Flags().StringVar(&f.checkpoint, "checkpoint", "", "file of what skerry audit checkpoint printed, - for standard input")
	cmd.Flags().StringArrayVar(&f.expect, "expect-head", nil, "writer:seq:hash of a record that must be there (repeatable)")
	return cmd
}

// verify checks; keyed says that the caller named a key, and so expects signatures.
func (f verifyFlags) verify(cmd *cobra.Command, api *client.Client) (res verify.Result, keyed bool, err error) {
	if len(f.segments) == 0 {
		if f.publicKey != "" || f.checkpoint != "" || len(f.expect) > 0 {
			return res, false, errors.New("--public-key, --checkpoint and --expect-head check files: say which with --segments")
		}
		return res, false, api.Call(cmd.Context(), http.MethodPost, "/api/audit/verify", struct{}{}, &res)
	}
	dirs := slices.Clone(f.segments)
	for i, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return res, false, fmt.Errorf("--segments: %s is no folder; the log of a server is in <data>/audit", dir)
		}
		if dirs[i], err = filepath.Abs(dir); err != nil {
			return res, false, err
		}
	}
	dir := dirs[0]
	public, keep, err := localKey(f.publicKey)
	if err != nil {
		return res, false, err
	}
	o, err := signing.Against(dir, public, keep)
	if err != nil {
		return res, false, err
	}
	o.More = dirs[1:]
	for _, text := range f.expect {
		h, err := record.ParseHead(text)
		if err != nil {
			return res, false, fmt.Errorf("--expect-head: %w", err)
		}
		o.Expect = append(o.Expect, h)
	}
	held, err := f.held(cmd.InOrStdin(), o.Keys)
	if err != nil {
		return res, false, err
	}
	o.Expect = append(o.Expect, held...)
	if public == nil && len(o.Keys) > 0 && !api.JSON {
		fmt.Fprintln(cmd.ErrOrStderr(), "skerry: no public key was named: those in the log's own folder are trusted, which proves nothing against an attacker who can write there (--public-key)")
	}
	res, err = verify.Verify(cmd.Context(), dir, o)
	return res, f.publicKey != "", err
}

// maxCheckpoints bounds a file of checkpoints.
const maxCheckpoints = 16 << 20

// held reads the checkpoints, and checks their signatures when there are keys.
func (f verifyFlags) held(stdin io.Reader, keys []verify.PublicKey) ([]record.Head, error) {
	if f.checkpoint == "" {
		return nil, nil
	}
	in := stdin
	if f.checkpoint != "-" {
		file, err := os.Open(f.checkpoint)
		if err != nil {
			return nil, fmt.Errorf("--checkpoint: %w", err)
		}
		defer file.Close() //nolint:errcheck // it was read
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxCheckpoints))
	if err != nil {
		return nil, fmt.Errorf("--checkpoint: %w", err)
	}
	var heads []record.Head
	for n, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var h record.Head
		if err := json.Unmarshal(line, &h); err != nil || h.Seq == 0 || h.Writer == "" {
			return nil, fmt.Errorf("--checkpoint: line %d is no checkpoint, as skerry audit checkpoint prints it", n+1)
		}
		if at := slices.IndexFunc(keys, func(k verify.PublicKey) bool { return k.ID == h.Signer }); len(keys) > 0 && (at < 0 || !h.SignedBy(keys[at].Key)) {
			return nil, fmt.Errorf("--checkpoint: line %d is not signed with a key that is believed", n+1)
		}
		heads = append(heads, h)
	}
	return heads, nil
}

func printVerdict(w io.Writer, res verify.Result) error {
	for _, s := range res.Writers {
		fmt.Fprintf(w, "%s  complete to record %d, of %s", s.Writer, s.Seq, output.Time(s.Time))
		switch {
		case s.SignedSeq > 0:
			fmt.Fprintf(w, "; signed to record %d at %s with key %s", s.SignedSeq, s.SignedAt, s.SignedWith)
			if s.Overdue {
				fmt.Fprint(w, "; the records behind that should be signed, and are not")
			}
		case s.Unchecked > 0:
			fmt.Fprintf(w, "; %d signatures, and no key to check them with", s.Unchecked)
		default:
			fmt.Fprint(w, "; not signed")
		}
		fmt.Fprintf(w, "\n  head %s\n", s.Head)
		if s.From > 0 {
			fmt.Fprintf(w, "  from record %d on: those before are not here; the log says that they were archived and removed, and what the first one follows is taken on its word (--segments for the archive, too)\n", s.From)
		}
	}
	if res.OK {
		_, err := fmt.Fprintf(w, "ok: %d records\n", res.Records)
		return err
	}
	b := res.FirstBad
	fmt.Fprintf(w, "NOT AS WRITTEN: record %d of writer %s was %s", b.Seq, b.Writer, b.Reason)
	if b.Through > b.Seq {
		fmt.Fprintf(w, " (it, or one up to record %d)", b.Through)
	}
	if b.Segment != "" {
		fmt.Fprintf(w, "\n  where: %s/%s, line %d", b.Writer, b.Segment, b.Line)
	}
	if b.ID != "" {
		fmt.Fprintf(w, "\n  id: %s", strings.ToValidUTF8(fmt.Sprintf("%.64q", b.ID), "?"))
	}
	if b.Detail != "" {
		fmt.Fprintf(w, "\n  why: %s", b.Detail)
	}
	_, err := fmt.Fprintf(w, "\n%d records are good\n", res.Records)
	return err
}

func newAuditCheckpoint(api *client.Client) *cobra.Command {
	var segments string
	cmd := &cobra.Command{
		Use: "checkpoint", Short: "Print signed heads of the audit log, to be kept elsewhere",
		Long: "Prints a line of JSON for each writer of the audit log: the head as the server signs it now, or, with --segments, as it was signed last.\n" +
			"Kept out of reach of those who can write to the log, it shows later that the log was cut or written anew: skerry audit verify --checkpoint.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list struct {
				Items []record.Head `json:"items"`
			}
			var err error
			if segments != "" {
				list.Items, err = verify.SignedHeads(segments)
			} else {
				err = api.Call(cmd.Context(), http.MethodGet, "/api/audit/checkpoint", nil, &list)
			}
			if err != nil {
				return err
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			for _, h := range list.Items {
				if err := out.Encode(h); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&segments, "segments", "", "the log's folder: read its files, without a server")
	return cmd
}

func newAuditKeys(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "The keys that sign the audit log of this host"}
	var dir, file string
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the public keys that sign and signed it, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := signing.List(filepath.Join(dir, "audit"))
			if err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), entries)
			}
			for _, e := range entries {
				by := "itself"
				if e.Former != "" {
					by = "no key: the former one was lost"
				}
				if len(e.Handed) > 0 {
					by = e.Former
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s  since %s  vouched for by %s\n  %x\n", e.ID, output.Time(e.Since), by, []byte(e.Public))
			}
			return nil
		},
	}
	rotate := &cobra.Command{
		Use: "rotate", Short: "Replace the key that signs; servers pick the new one up by themselves", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			old, fresh, err := signing.Rotate(cmd.Context(), file, dir, filepath.Join(dir, "audit"))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "key %s vouched for %s, which signs from now on; the public one is in %s\n", old, fresh, signing.PublicPath(file))
			return err
		},
	}
	cmd.PersistentFlags().StringVar(&dir, "data", environment.Or("SKERRY_DATA", "/var/lib/skerry"), "data folder (SKERRY_DATA)")
	rotate.Flags().StringVar(&file, "key-file", environment.Or("SKERRY_AUDIT_SIGNING_KEY_FILE", "/etc/skerry/audit-signing-key.pem"), "file of the private key (SKERRY_AUDIT_SIGNING_KEY_FILE)")
	cmd.AddCommand(list, rotate)
	return cmd
}
