package client

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skerry-sandbox/skerry/internal/platform/boundedproto"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

const (
	// maxMessage holds an exit event with both tails.
	maxMessage = sandbox.MaxOutputBytes + 1<<20
	// maxError holds an error of Connect, which is JSON: its details and metadata take much more memory than they have
	// bytes.
	maxError = 64 << 10
	maxEmpty = 1 << 10 // an answer without fields, of a sandboxd that may know more of them
)

// answers has the limits of all that sandboxd answers.
var answers = boundedproto.Table{
	nameOf(&sandboxv1.StatusResponse{}): {Bytes: 1 << 20, Values: maxExecs + 4*maxStrings},
	// started, output or exit; of an exit both streams and what a context displayed
	nameOf(&sandboxv1.Event{}):           {Bytes: maxMessage, Values: 3 + sandbox.MaxResults},
	nameOf(&sandboxv1.FileInfo{}):        {Bytes: 2*maxPath + 1<<10},
	nameOf(&sandboxv1.ListDirResponse{}): {Bytes: maxMessage, Values: maxListed},
	nameOf(&sandboxv1.FileChunk{}):       {Bytes: fileChunk + 1<<10},

	nameOf(&sandboxv1.ListProcessesResponse{}): {Bytes: 1 << 20, Values: maxProcesses},

	nameOf(&sandboxv1.KillProcessResponse{}):      {Bytes: maxEmpty},
	nameOf(&sandboxv1.WriteStdinResponse{}):       {Bytes: maxEmpty},
	nameOf(&sandboxv1.SignalResponse{}):           {Bytes: maxEmpty},
	nameOf(&sandboxv1.ResizeResponse{}):           {Bytes: maxEmpty},
	nameOf(&sandboxv1.KillResponse{}):             {Bytes: maxEmpty},
	nameOf(&sandboxv1.HoldDeadlineResponse{}):     {Bytes: maxEmpty},
	nameOf(&sandboxv1.OpenContextResponse{}):      {Bytes: maxEmpty},
	nameOf(&sandboxv1.InterruptContextResponse{}): {Bytes: maxEmpty},
	nameOf(&sandboxv1.CloseContextResponse{}):     {Bytes: maxEmpty},
	nameOf(&sandboxv1.WarmResponse{}):             {Bytes: maxEmpty},
	nameOf(&sandboxv1.ForgetResponse{}):           {Bytes: maxEmpty},
	nameOf(&sandboxv1.RemoveResponse{}):           {Bytes: maxEmpty},
}

func nameOf(m proto.Message) protoreflect.FullName { return m.ProtoReflect().Descriptor().FullName() }

// answer is what a procedure answers.
type answer struct {
	bytes  int64 // the most of one message
	stream bool
}

// procedures are those of the contract, by their paths.
var procedures = func() map[string]answer {
	all := map[string]answer{}
	services := sandboxv1.File_internal_sandboxapi_v1_sandbox_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			path := fmt.Sprintf("/%s/%s", services.Get(i).FullName(), m.Name())
			all[path] = answer{int64(answers.Of(m.Output()).Bytes), m.IsStreamingClient() || m.IsStreamingServer()}
		}
	}
	return all
}()

// boundedConn bounds what of an answer gets into memory. Connect alone would read errors, and the ends of streams, up
// to the length of the largest message.
type boundedConn struct{ conn connect.HTTPClient }

// Do implements connect.HTTPClient.
func (b boundedConn) Do(req *http.Request) (*http.Response, error) {
	res, err := b.conn.Do(req)
	if err != nil {
		return nil, err
	}
	a := procedures[req.URL.Path]
	switch {
	case res.StatusCode != http.StatusOK:
		res.Body = &boundedBody{ReadCloser: res.Body, most: maxError}
	case a.stream:
		res.Body = &boundedStream{ReadCloser: res.Body, most: a.bytes}
	default:
		res.Body = &boundedBody{ReadCloser: res.Body, most: a.bytes}
	}
	return res, nil
}

// newAPI returns the calls of a connection, with bounded answers.
func newAPI(conn connect.HTTPClient) sandboxv1connect.SandboxServiceClient {
	return sandboxv1connect.NewSandboxServiceClient(boundedConn{conn}, "http://sandbox",
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCodec(boundedproto.Codec{Table: answers}),
		connect.WithAcceptCompression("gzip", nil, nil)) // a unix socket is faster than gzip
}

// tooLong is the error of Connect for a message that is too long, so that it comes through as it is.
func tooLong(what string, n, most int64) error {
	return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s of %d bytes or more, at most %d", what, n, most))
}

// boundedBody is an answer of one message, or an error.
type boundedBody struct {
	io.ReadCloser
	most, got int64 // bytes
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.got += int64(n); b.got > b.most {
		return 0, tooLong("an answer", b.got, b.most)
	}
	return n, err
}

// boundedStream is an answer of many messages. Before each of them come five bytes: flags, and its length.
type boundedStream struct {
	io.ReadCloser
	most int64 // bytes of a message
	head [5]byte
	got  int   // bytes of head
	left int64 // of the message
}

// endOfStream is the flag of the message that ends a stream. It is JSON, and may hold an error.
const endOfStream = 1 << 1

func (b *boundedStream) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if b.left > 0 {
			k := min(b.left, int64(len(rest)))
			rest, b.left = rest[k:], b.left-k
			continue
		}
		k := copy(b.head[b.got:], rest)
		rest = rest[k:]
		if b.got += k; b.got < len(b.head) {
			break
		}
		b.got, b.left = 0, int64(binary.BigEndian.Uint32(b.head[1:]))
		most := b.most
		if b.head[0]&endOfStream != 0 {
			most = maxError
		}
		if b.left > most {
			return 0, tooLong("a message", b.left, most)
		}
	}
	return n, err
}
