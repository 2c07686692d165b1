"""Export of trained models: weights, model card, ONNX, and prediction."""
