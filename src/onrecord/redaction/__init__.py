"""Redaction: finds secrets in what agents and commands produce and replaces them before anything is sealed."""
