"""Room: records/browser. The client for pages, and how the node serves it.

moorline-records.js, .d.ts    the client, one file
records-react.js, .d.ts       a hook for React around it
"""
