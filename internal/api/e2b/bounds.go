package e2b

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/platform/boundedproto"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxCommand holds the words and variables of a command in JSON, which can have six bytes for one.
	maxCommand = 8 * (sandbox.MaxArgvBytes + sandbox.MaxEnvBytes)
	// maxPlain holds two paths, each escaped.
	maxPlain = 256 << 10
	// maxSelector is the values of a request that names a process.
	maxSelector = 8
)

// requests has the limits of all that clients ask envd for. The command has twice the words that one may have: a
// client that sends a few too many is told by the use case.
var requests = boundedproto.Table{
	nameOf(&process.StartRequest{}):      {Bytes: maxCommand, Values: 2*(sandbox.MaxArgs+2*sandbox.MaxEnv) + maxSelector},
	nameOf(&process.SendInputRequest{}):  {Bytes: maxBodyBytes, Values: maxSelector},
	nameOf(&process.ListRequest{}):       {Bytes: maxPlain},
	nameOf(&process.ConnectRequest{}):    {Bytes: maxPlain, Values: maxSelector},
	nameOf(&process.UpdateRequest{}):     {Bytes: maxPlain, Values: maxSelector},
	nameOf(&process.SendSignalRequest{}): {Bytes: maxPlain, Values: maxSelector},
	nameOf(&process.CloseStdinRequest{}): {Bytes: maxPlain, Values: maxSelector},

	nameOf(&filesystem.StatRequest{}):             {Bytes: maxPlain},
	nameOf(&filesystem.MakeDirRequest{}):          {Bytes: maxPlain},
	nameOf(&filesystem.MoveRequest{}):             {Bytes: maxPlain},
	nameOf(&filesystem.ListDirRequest{}):          {Bytes: maxPlain},
	nameOf(&filesystem.RemoveRequest{}):           {Bytes: maxPlain},
	nameOf(&filesystem.WatchDirRequest{}):         {Bytes: maxPlain},
	nameOf(&filesystem.CreateWatcherRequest{}):    {Bytes: maxPlain},
	nameOf(&filesystem.GetWatcherEventsRequest{}): {Bytes: maxPlain},
	nameOf(&filesystem.RemoveWatcherRequest{}):    {Bytes: maxPlain},
}

func nameOf(m proto.Message) protoreflect.FullName { return m.ProtoReflect().Descriptor().FullName() }

// bounded are the options of envd's services: a message is counted before it is decoded.
func bounded() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithReadMaxBytes(maxBodyBytes),
		connect.WithCodec(boundedproto.Codec{Table: requests}),
		connect.WithCodec(boundedproto.JSON{Table: requests, Named: "json"}),
		connect.WithCodec(boundedproto.JSON{Table: requests, Named: "json; charset=utf-8"}),
	)
}

// retryAfter is said to a client whose body found no room, in seconds: requests of others end soon.
const retryAfter = "5"

// lengthOf is how long a body becomes, in bytes; -1: one that is packed, or that does not say, may have any length.
func lengthOf(r *http.Request) int64 {
	if packed(r) {
		return -1
	}
	return r.ContentLength
}

// packed reports whether a body is compressed, in the words of Connect, gRPC-Web or HTTP.
func packed(r *http.Request) bool {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if v := r.Header.Get(name); v != "" && v != "identity" {
			return true
		}
	}
	return false
}
