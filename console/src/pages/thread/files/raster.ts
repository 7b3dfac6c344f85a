const magic: [type: string, at: number, bytes: number[]][] = [
  ["image/png", 0, [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ["image/jpeg", 0, [0xff, 0xd8, 0xff]],
  ["image/gif", 0, [0x47, 0x49, 0x46, 0x38]],
  ["image/webp", 8, [0x57, 0x45, 0x42, 0x50]],
  ["image/bmp", 0, [0x42, 0x4d]],
];

/** The type of an image of pixels, by how it begins. SVG is none: it is a document that can have scripts. */
export function rasterType(head: Uint8Array): string | undefined {
  return magic.find(([, at, bytes]) => bytes.every((b, i) => head[at + i] === b))?.[0];
}
