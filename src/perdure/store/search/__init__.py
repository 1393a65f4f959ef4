"""Full-text search: tokenizer, query parser, index and addresses."""
