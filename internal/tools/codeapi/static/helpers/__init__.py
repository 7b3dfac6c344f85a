"""What the wrappers need: call_mcp_tool.call_mcp_tool and call_mcp_tool.MCPToolError."""
