"""What is known of each model (window, prices, limits learned) and how many tokens a text comes to."""
