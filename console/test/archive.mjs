// ZIP archives of texts, without a program beside: nothing is compressed.
import { crc32 } from "node:zlib";

/** An archive of files: their texts by path. */
export function zip(files) {
  const parts = [];
  const list = [];
  let at = 0;
  for (const [path, text] of Object.entries(files)) {
    const name = Buffer.from(path);
    const data = Buffer.from(text);
    const head = Buffer.alloc(30);
    head.writeUInt32LE(0x04034b50, 0);
    head.writeUInt16LE(20, 4);
    head.writeUInt16LE(0x0800, 6); // names are UTF-8
    head.writeUInt16LE(0x21, 12); // 1980-01-01
    head.writeUInt32LE(crc32(data), 14);
    head.writeUInt32LE(data.length, 18);
    head.writeUInt32LE(data.length, 22);
    head.writeUInt16LE(name.length, 26);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(20, 4);
    head.copy(entry, 6, 4, 30);
    entry.writeUInt32LE(at, 42);
    list.push(entry, name);
    parts.push(head, name, data);
    at += head.length + name.length + data.length;
  }
  const directory = Buffer.concat(list);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(list.length / 2, 8);
  end.writeUInt16LE(list.length / 2, 10);
  end.writeUInt32LE(directory.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...parts, directory, end]);
}

/** The form that the server takes an upload by. */
export function form(name, bytes) {
  const content = new FormData();
  content.append("file", new Blob([bytes]), name);
  return content;
}
