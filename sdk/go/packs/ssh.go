package packs

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// sshKey signs challenges. open returns the key anew for each connection: an agent may have been started again.
type sshKey struct {
	open func() (s ssh.Signer, certificate *ssh.Certificate, close func(), err error)
}

func (sshKey) apply(http.Header) {}

// namespace is that of the signatures of packs. A server that asks for another one is none of Skerry.
const namespace = "skerry-pack@v1"

func (k sshKey) sign(c *packsv1.Challenge, pack, address string) ([]byte, error) {
	if c.GetNamespace() != namespace || strings.ContainsAny(c.GetServerId(), "\r\n") {
		return nil, fmt.Errorf("the server asks for a signature of the namespace %.60q", c.GetNamespace())
	}
	signer, certificate, done, err := k.open()
	if err != nil {
		return nil, err
	}
	defer done()
	signature, err := signChallenge(signer, c, pack, address)
	if err != nil {
		return nil, err
	}
	if certificate != nil {
		signature.PublicKey = certificate
	}
	return signature.Marshal(), nil
}

func signChallenge(s ssh.Signer, c *packsv1.Challenge, pack, address string) (*sshsig.Signature, error) {
	text := fmt.Sprintf("skerry-pack-v1\n%s\n%s\n%d\n%s\n%s\n", c.GetServerId(), hex.EncodeToString(c.GetNonce()), c.GetExpiresAt(), pack, address)
	return sshsig.Sign(strings.NewReader(text), s, sshsig.HashSHA512, namespace)
}

// SignChallenge answers a challenge, for a program that speaks the contract itself. address is the host and port that it
// has dialled.
func SignChallenge(s ssh.Signer, c *packsv1.Challenge, pack, address string) ([]byte, error) {
	signature, err := signChallenge(s, c, pack, address)
	if err != nil {
		return nil, err
	}
	return signature.Marshal(), nil
}

// SSHKey signs with a key of this program.
func SSHKey(s ssh.Signer) Credential {
	return sshKey{func() (ssh.Signer, *ssh.Certificate, func(), error) { return s, nil, func() {}, nil }}
}

// SSHKeyFile signs with a private key in a file that has no passphrase. A certificate beside it, in FILE-cert.pub, is
// sent along. The files are read for each connection.
func SSHKeyFile(file string) Credential {
	return sshKey{func() (ssh.Signer, *ssh.Certificate, func(), error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, nil, err
		}
		signer, err := ssh.ParsePrivateKey(text)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the key in %s: %w", file, err)
		}
		certificate, err := readCertificate(file+"-cert.pub", signer.PublicKey())
		return signer, certificate, func() {}, err
	}}
}

func readCertificate(file string, key ssh.PublicKey) (*ssh.Certificate, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, fmt.Errorf("the certificate in %s: %w", file, err)
	}
	certificate, ok := public.(*ssh.Certificate)
	if !ok || !bytes.Equal(certificate.Key.Marshal(), key.Marshal()) {
		return nil, fmt.Errorf("%s is no certificate of the key beside it", file)
	}
	return certificate, nil
}

// SSHAgent signs with a key in an agent that listens on a unix socket, which SSH_AUTH_SOCK often names. fingerprint is
// the key's, as ssh-add -l prints it.
func SSHAgent(socket, fingerprint string) Credential {
	return sshKey{func() (ssh.Signer, *ssh.Certificate, func(), error) {
		conn, err := net.DialTimeout("unix", socket, dialTime)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the SSH agent: %w", err)
		}
		signer, err := agentKey(agent.NewClient(conn), fingerprint)
		if err != nil {
			return nil, nil, nil, errors.Join(err, conn.Close())
		}
		return signer, nil, func() { _ = conn.Close() }, nil
	}}
}

func agentKey(a agent.Agent, fingerprint string) (ssh.Signer, error) {
	signers, err := a.Signers()
	if err != nil {
		return nil, fmt.Errorf("the SSH agent: %w", err)
	}
	for _, s := range signers {
		if _, certified := s.PublicKey().(*ssh.Certificate); !certified && ssh.FingerprintSHA256(s.PublicKey()) == fingerprint {
			return s, nil
		}
	}
	return nil, fmt.Errorf("the SSH agent has no key %s", fingerprint)
}
