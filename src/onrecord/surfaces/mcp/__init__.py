"""The MCP server, `onrecord mcp`: six tools, resources and prompts over the record, for any client of the protocol.

Standard output belongs to the protocol; nothing else is printed. The SDK is the extra `mcp`; only `serving` and
`answers` import it, so every other module here can be tested and measured without it.
"""
