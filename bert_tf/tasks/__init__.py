"""The paper's downstream tasks as tables (section 4, appendix B.1)."""
