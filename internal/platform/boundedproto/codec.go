package boundedproto

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Codec encodes and decodes the messages of a Connect client or handler: it is a connect.Codec.
type Codec struct{ Table Table }

// Name is that of the codec which this one stands in for.
func (Codec) Name() string { return "proto" }

// Marshal encodes a message.
func (c Codec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

// MarshalAppend encodes a message behind what dst holds.
func (Codec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", v)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal decodes a message within the limits of its kind.
func (c Codec) Unmarshal(raw []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", v)
	}
	return c.Table.Unmarshal(raw, m)
}

// JSON is Codec for the JSON form of messages.
type JSON struct {
	Table Table
	Named string // by a media type: "json", or "json; charset=utf-8"
}

// Name is that of the codec which this one stands in for.
func (j JSON) Name() string { return j.Named }

// Marshal encodes a message.
func (j JSON) Marshal(v any) ([]byte, error) { return j.MarshalAppend(nil, v) }

// MarshalAppend encodes a message behind what dst holds.
func (JSON) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", v)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal decodes a message within the limits of its kind.
func (j JSON) Unmarshal(text []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", v)
	}
	return j.Table.DecodeJSON(text, m)
}
