package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process/processconnect"
	"github.com/skerry-sandbox/skerry/internal/platform/boundedproto"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/nest"
)

const (
	// daemonPort is where the service's daemon listens in a sandbox.
	daemonPort = "49983"
	// home is the folder of the service's user, and folder the private one in it: see package nest.
	home   = "/home/user"
	folder = home + "/.skerry"
	// maxMessage bounds one message of the daemon: a piece of output has 32 KiB or so, and a list of processes is short.
	maxMessage = 4 << 20
	// uploadTimeout bounds the upload of the two programs.
	uploadTimeout = 2 * time.Minute
	// silence is how long the daemon may say nothing on a stream; it is told to say something more often.
	silence   = 100 * time.Second
	pingEvery = "30"
)

// maxListed are the processes of a list, with their arguments and variables, and maxEvent is what an event is made of.
const (
	maxListed = 20_000
	maxEvent  = 16
)

// answers has the limits of what the daemon says. It runs beside what may be hostile.
var answers = boundedproto.Table{
	nameOf(&process.ListResponse{}):       {Bytes: maxMessage, Values: maxListed},
	nameOf(&process.StartResponse{}):      {Bytes: maxMessage, Values: maxEvent},
	nameOf(&process.ConnectResponse{}):    {Bytes: maxMessage, Values: maxEvent},
	nameOf(&process.SendInputResponse{}):  {Bytes: maxMessage, Values: maxEvent},
	nameOf(&process.SendSignalResponse{}): {Bytes: maxMessage, Values: maxEvent},
}

func nameOf(m proto.Message) protoreflect.FullName { return m.ProtoReflect().Descriptor().FullName() }

// envd is the service's daemon in one sandbox.
type envd struct {
	url       string
	http      *http.Client
	processes processconnect.ProcessClient
}

// envd returns the daemon of a sandbox. m has a token when the daemon wants one.
func (s *service) envd(m made) *envd {
	base := s.sandboxURL
	if base == "" {
		domain := s.domain
		if m.Domain != "" {
			domain = m.Domain
		}
		base = "https://" + daemonPort + "-" + m.ID + "." + domain
	}
	client := *s.http
	client.Transport = &identified{next: s.http.Transport, sandbox: m.ID, token: m.Token}
	return &envd{
		url: base, http: &client,
		processes: processconnect.NewProcessClient(&client, base, connect.WithReadMaxBytes(maxMessage), connect.WithCodec(boundedproto.Codec{Table: answers})),
	}
}

// identified says to the daemon which sandbox is meant, and that it may be asked.
type identified struct {
	next           http.RoundTripper
	sandbox, token string
}

func (i *identified) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	h := r.Header
	h.Set("E2b-Sandbox-Id", i.sandbox)
	h.Set("E2b-Sandbox-Port", daemonPort)
	h.Set("Keepalive-Ping-Interval", pingEvery)
	r.SetBasicAuth("user", "")
	if i.token != "" {
		h.Set("X-Access-Token", i.token)
	}
	return i.next.RoundTrip(r)
}

// upload is a file that goes into the private folder: a file of this host, or a text.
type upload struct {
	name, file string
	text       []byte
}

// upload puts files into the private folder, in one request.
func (e *envd) upload(ctx context.Context, files []upload) error {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	body, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { w.CloseWithError(write(form, files)) }()
	defer body.Close() //nolint:errcheck // ends the writer
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/files?"+url.Values{"username": {"user"}}.Encode(), body)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the request cannot be made")
	}
	r.Header.Set("Content-Type", form.FormDataContentType())
	answer, err := e.http.Do(r)
	if err != nil {
		return unanswered(ctx, err)
	}
	defer drain(answer)
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxSaid)) //nolint:errcheck // it is for the log
		return sandbox.Wrap(sandbox.Unavailable, fmt.Errorf("status %d: %q", answer.StatusCode, text), "the sandbox takes no files (status %d)", answer.StatusCode)
	}
	return nil
}

func write(form *multipart.Writer, files []upload) error {
	for _, f := range files {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", fmt.Sprintf(`form-data; name="file"; filename="%s"`, folder+"/"+f.name))
		h.Set("Content-Type", "application/octet-stream")
		part, err := form.CreatePart(h)
		if err != nil {
			return err
		}
		if f.file == "" {
			_, err = part.Write(f.text)
		} else {
			err = copyFile(part, f.file)
		}
		if err != nil {
			return err
		}
	}
	return form.Close()
}

func copyFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read-only
	_, err = io.Copy(to, f)
	return err
}

// The command lines of the processes that the driver starts. The first words tell one from the other in a list.
const (
	serveCommand = "exec ./" + nest.BridgeFile + " --nest"
	relayCommand = "exec ./" + nest.BridgeFile + " --relay " + nest.SocketFile
	// prepareCommand comes before: what was uploaded is no program yet, and may be read by anyone.
	prepareCommand = "chmod 700 . certs " + nest.BridgeFile + " && chmod 755 " + nest.DaemonFile + " && "
)

func shell(command string) *process.ProcessConfig {
	cwd := folder
	return &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", command}, Cwd: &cwd}
}

// stream is the output of a process: of Start, or of Connect.
type stream struct {
	next   func() (*process.ProcessEvent, error)
	cancel context.CancelFunc
	watch  *time.Timer // cancels when the daemon falls silent
}

// newStream takes the messages of one of the two kinds of streams.
func newStream[M any](s *connect.ServerStreamForClient[M], event func(*M) *process.ProcessEvent, cancel context.CancelFunc) *stream {
	out := &stream{cancel: cancel, watch: time.AfterFunc(silence, cancel)}
	out.next = func() (*process.ProcessEvent, error) {
		if !s.Receive() {
			if err := s.Err(); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		out.watch.Reset(silence)
		return event(s.Msg()), nil
	}
	return out
}

func (s *stream) close() {
	s.watch.Stop()
	s.cancel()
}

// start starts a process, and returns its number and its output from there on. The process goes on without the stream.
// life ends the stream, ctx the wait for its beginning.
func (e *envd) start(ctx, life context.Context, p *process.StartRequest) (pid uint32, s *stream, err error) {
	life, cancel := context.WithCancel(life)
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	raw, err := e.processes.Start(life, connect.NewRequest(p))
	if err == nil {
		s = newStream(raw, (*process.StartResponse).GetEvent, cancel)
		pid, err = s.began()
	}
	return pid, s, e.begun(ctx, s, cancel, err)
}

// follow is start for a process that runs already.
func (e *envd) follow(ctx, life context.Context, pid uint32) (s *stream, err error) {
	life, cancel := context.WithCancel(life)
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	raw, err := e.processes.Connect(life, connect.NewRequest(&process.ConnectRequest{Process: selector(pid)}))
	if err == nil {
		s = newStream(raw, (*process.ConnectResponse).GetEvent, cancel)
		_, err = s.began()
	}
	return s, e.begun(ctx, s, cancel, err)
}

func (*envd) begun(ctx context.Context, s *stream, cancel context.CancelFunc, err error) error {
	if err == nil {
		return nil
	}
	cancel()
	if s != nil {
		s.close()
	}
	return daemonError(ctx, err)
}

// began waits for the first event, which names the process.
func (s *stream) began() (uint32, error) {
	for range 16 { // a keepalive may come first
		e, err := s.next()
		if err != nil {
			return 0, err
		}
		if start := e.GetStart(); start != nil {
			return start.GetPid(), nil
		}
	}
	return 0, errors.New("the daemon does not say which process it started")
}

func selector(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// bridge returns the number of the process that is the sandbox; 0: it does not run.
func (e *envd) bridge(ctx context.Context) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	list, err := e.processes.List(ctx, connect.NewRequest(&process.ListRequest{}))
	if err != nil {
		return 0, daemonError(ctx, err)
	}
	for _, p := range list.Msg.GetProcesses() {
		if words := strings.Join(append([]string{p.GetConfig().GetCmd()}, p.GetConfig().GetArgs()...), " "); strings.Contains(words, serveCommand) {
			return p.GetPid(), nil
		}
	}
	return 0, nil
}

// send types into the terminal of a process.
func (e *envd) send(ctx context.Context, pid uint32, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := e.processes.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
		Process: selector(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: data}},
	}))
	return err
}

func (e *envd) kill(ctx context.Context, pid uint32) error {
	_, err := e.processes.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: selector(pid), Signal: process.Signal_SIGNAL_SIGKILL}))
	return err
}

// daemonError is the error of a call of the daemon.
func daemonError(ctx context.Context, err error) error {
	switch connect.CodeOf(err) {
	case connect.CodeNotFound:
		return sandbox.Wrap(sandbox.NotFound, err, "the sandbox has no such process")
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return sandbox.Wrap(sandbox.Unavailable, err, "the service's sandbox refuses this server's key")
	case connect.CodeResourceExhausted:
		return sandbox.Wrap(sandbox.CapacityExceeded, err, "the service's sandbox lets this server start no more")
	}
	if ctx.Err() != nil {
		return sandbox.Wrap(sandbox.Timeout, err, "the service's sandbox did not answer in time")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the service's sandbox cannot be reached")
}
